"""Runs that cannot go on say why, and lose nothing."""

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.priors import Prior
from bayeslim.storage import read_tensors
from training.problems import blobs, equal, line, small, state

CLASSES = bl.Categorical()


def fit(model: nn.Module, folder: Path | None = None, data: Any = None, **changes: Any) -> bl.History:
    options = {"likelihood": CLASSES, "epochs": 3, "batch_size": 16, "seed": 0, "checkpoint": folder} | changes
    return bl.fit(model, blobs() if data is None else data, **options)


class Constant(Prior):
    """A prior whose KL is the same whatever the posterior."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean * 0 + self.value

    def config(self) -> dict[str, Any]:
        return {"value": self.value}


def test_an_infinite_nll_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    model, (x, y) = small(outputs=2), line()
    before = state(model)
    with pytest.raises(FloatingPointError, match=r"the nll became inf in batch 1 .*kl \d.*lower `lr`.*clip_norm"):
        fit(model, tmp_path, (x, y), likelihood=Gaussian(noise=1e-30))
    assert equal(model, before)
    tensors, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["epoch"] == 0
    assert equal({name[6:]: value for name, value in tensors.items() if name.startswith("model.")}, before)


def test_a_rate_that_explodes_is_named_and_the_checkpoint_is_good(tmp_path: Path) -> None:
    def exploding(progress: bl.schedules.Progress) -> float:
        return 1.0 if progress.step < 7 else 1e36

    model = small(outputs=2)
    with pytest.raises(FloatingPointError, match=r"the nll became (inf|nan) in batch 3"):
        fit(model, tmp_path, line(), likelihood=Gaussian(0.3), lr_schedule=exploding)
    _, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["epoch"] == 2
    good, whole = small(seed=5, outputs=2), small(outputs=2)
    fit(good, tmp_path, line(), likelihood=Gaussian(0.3), resume=True)
    fit(whole, None, line(), likelihood=Gaussian(0.3))
    assert equal(good, whole)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_bad_batch_anywhere_in_a_step_keeps_the_parameters(bad: int) -> None:
    """Three batches make a step; whichever is bad, the update is not made."""
    x, y = line(48)
    y[16 * bad] = 1e30
    model = small(outputs=2)
    before = state(model)
    with pytest.raises(FloatingPointError, match=f"the nll became inf in batch {bad + 1} of the epoch"):
        fit(model, None, DataLoader(TensorDataset(x, y), 16), likelihood=Gaussian(), accumulate=3)
    assert equal(model, before)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_kl_that_is_not_finite_is_named(value: float, tmp_path: Path) -> None:
    model = bl.layers.Linear(3, 3, prior=Constant(value))
    before = state(model)
    message = rf"the kl became {value} in batch 1 .*nll \d.*lower `scale_lr`, bound the scales"
    with pytest.raises(FloatingPointError, match=message):
        fit(model, tmp_path)
    assert equal(model, before)
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["epoch"] == 0


def test_an_infinite_kl_does_no_harm_while_it_is_off() -> None:
    model = bl.layers.Linear(3, 3, prior=Constant(math.inf))
    history = fit(model, pretrain_epochs=1, kl_schedule=bl.schedules.constant(0.0))
    assert len(history) == 3 and history["kl"] == [math.inf] * 3
    assert all(math.isfinite(energy) for energy in history["energy"])


class RootOfZero(nn.Module):
    """`0 * sqrt(0 * w) + w x`: a finite value whose gradient is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.factor = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.factor.sqrt() * 0


def test_a_gradient_that_is_not_finite_never_reaches_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"the parameter factor is no longer finite.*or set clip_norm"):
        fit(RootOfZero(), tmp_path, batch_size=48)
    tensors, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["epoch"] == 0 and all(bool(tensor.isfinite().all()) for tensor in tensors.values())


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    fit(small(), tmp_path)
    content = (tmp_path / "checkpoint.safetensors").read_bytes()
    model = small(seed=4)
    before = state(model)
    with pytest.raises(FileExistsError, match="already holds a training run: pass resume=True to continue it"):
        fit(model, tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == content and equal(model, before)


def test_resuming_nothing_starts_a_run(tmp_path: Path) -> None:
    first, second = small(), small()
    fit(first, tmp_path / "new" / "folder", resume=True)
    fit(second)
    assert equal(first, second)


def test_an_unwritable_folder_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    model = small()
    before = state(model)
    with pytest.raises(OSError, match=r"cannot write to the folder .*file"):
        fit(model, tmp_path / "file" / "run")
    assert equal(model, before)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        writes.append(descriptor)
        if len(writes) == 9:  # a file, its folder: the checkpoint and the history of epochs 0 and 1 make eight
            raise OSError("no space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="no space left"):
        fit(small(), tmp_path)
    monkeypatch.undo()
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["epoch"] == 1
    assert sorted(os.listdir(tmp_path)) == ["checkpoint.safetensors", "history.jsonl"]
    resumed, whole = small(seed=3), small()
    fit(resumed, tmp_path, resume=True)
    fit(whole)
    assert equal(resumed, whole)


def test_a_history_that_was_left_behind_is_brought_up_to_date(tmp_path: Path) -> None:
    """A kill between the two files: the checkpoint knows all epochs."""
    history = fit(small(), tmp_path)
    whole = (tmp_path / "history.jsonl").read_text()
    (tmp_path / "history.jsonl").write_text("".join(whole.splitlines(keepends=True)[:1]))
    again = fit(small(), tmp_path, resume=True)
    assert again.records == history.records
    assert (tmp_path / "history.jsonl").read_text() == whole


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed=0, now 1"),
        ({"batch_size": 8}, "batches=3, now 6"),
        ({"data": blobs(45)}, "num_data=48, now 45"),
        ({"accumulate": 2}, "accumulate=1, now 2"),
        ({"samples": 2}, "samples=1, now 2"),
        ({"optimizer": functools.partial(torch.optim.SGD, lr=0.1)}, "optimizer=Adam, now SGD"),
    ],
)
def test_resuming_with_other_settings_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    fit(small(), tmp_path, epochs=1)
    content = (tmp_path / "checkpoint.safetensors").read_bytes()
    model = small(seed=4)
    before = state(model)
    with pytest.raises(ValueError, match=f"was started differently: .*{message}"):
        fit(model, tmp_path, resume=True, **changes)
    assert equal(model, before)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == content


def test_resuming_with_a_frozen_layer_is_refused(tmp_path: Path) -> None:
    fit(small(), tmp_path, epochs=1)
    model = small()
    model[0].requires_grad_(False)
    with pytest.raises(ValueError, match="parameters=6, now 3"):
        fit(model, tmp_path, resume=True)


def test_without_a_seed_the_stored_one_is_used(tmp_path: Path) -> None:
    resumed, whole = small(method="graves"), small(method="graves")
    fit(resumed, tmp_path, epochs=1)
    fit(resumed, tmp_path, seed=None, resume=True)
    fit(whole)
    assert equal(resumed, whole)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-30] ^= 4
    file.write_bytes(content)


def change_fact(file: Path) -> None:
    content = file.read_bytes()
    assert content.count(b"num_data") == 1
    file.write_bytes(content.replace(b"num_data", b"nun_data"))


def plain_safetensors(file: Path) -> None:
    safetensors.torch.save_file({"weight": torch.zeros(3)}, file)


def pickled(file: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, file)


def saved_network(file: Path) -> None:
    bl.save(small(), file)


def newer(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content.replace(b'bayeslim_version":"1"', b'bayeslim_version":"7"'))


def other_network(file: Path) -> None:
    file.unlink()
    fit(bl.mlp([3, 9, 3]), file.parent)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "not a readable safetensors file"),
        (empty, "not a readable safetensors file"),
        (flip_bit, "damaged: its checksum does not match"),
        (change_fact, "damaged: its checksum does not match"),
        (plain_safetensors, "was not written by bayeslim"),
        (pickled, "not a readable safetensors file"),
        (saved_network, "holds 'model', not a training checkpoint"),
        (newer, "format version 7, this bayeslim reads up to 1: upgrade"),
        (other_network, r"does not fit the network: 0.bias is \(9,\), expected \(8,\)"),
    ],
)
def test_a_checkpoint_that_is_not_ours_is_refused(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    fit(small(), tmp_path, epochs=1)
    file = tmp_path / "checkpoint.safetensors"
    damage(file)
    content = file.read_bytes()
    model = small(seed=4)
    before = state(model)
    with pytest.raises(ValueError, match=message):
        fit(model, tmp_path, resume=True)
    assert equal(model, before) and file.read_bytes() == content


def test_another_likelihood_is_refused_before_the_network_changes(tmp_path: Path) -> None:
    fit(small(outputs=2), tmp_path, line(), epochs=1, likelihood=Gaussian(learn_noise=True, outputs=2))
    for likelihood, message in (
        (Gaussian(learn_noise=True), r"log_noise is \(2,\), expected \(\)"),
        (bl.Bernoulli(), "parameters=7, now 6"),
    ):
        model = small(seed=4, outputs=2)
        before = state(model)
        data = line() if isinstance(likelihood, Gaussian) else (line()[0], (line()[1] > 0).float())
        with pytest.raises(ValueError, match=message):
            fit(model, tmp_path, data, resume=True, likelihood=likelihood)
        assert equal(model, before)
