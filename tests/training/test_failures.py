"""Checkpoints that cannot be written or resumed say why, and nothing is lost."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.storage import read_tensors
from training.problems import blobs, equal, line, small, state

CLASSES = bl.Categorical()


def fit(model: nn.Module, folder: Path | None = None, data: Any = None, **changes: Any) -> bl.History:
    options = {"likelihood": CLASSES, "epochs": 3, "batch_size": 16, "seed": 0, "checkpoint": folder} | changes
    return bl.fit(model, blobs() if data is None else data, **options)


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
        if len(writes) == 11:  # a file, its folder: the checkpoint and the history of epochs 0 and 1, two links
            raise OSError("no space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="no space left"):
        fit(small(), tmp_path)
    monkeypatch.undo()
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["epoch"] == 1
    assert sorted(os.listdir(tmp_path)) == [
        "checkpoint.previous.safetensors",
        "checkpoint.safetensors",
        "history.jsonl",
    ]
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


def test_resuming_with_other_frozen_parameters_is_refused(tmp_path: Path) -> None:
    """The optimiser would give one parameter the moments of another, and a fused one writes out of bounds."""

    def square(frozen: int | None) -> nn.Sequential:
        model = bl.mlp([3, 3, 3])
        if frozen is not None:
            model[frozen].requires_grad_(False)
        return model

    fit(square(frozen=0), tmp_path, epochs=1)
    for frozen, changed in ((2, "0.bias, 0.weight.loc"), (None, "0.bias, 0.weight.loc")):
        model = square(frozen)
        before = state(model)
        with pytest.raises(ValueError, match=f"trained other parameters .{changed}.*: freeze the same ones"):
            fit(model, tmp_path, resume=True)
        assert equal(model, before)
    fit(square(frozen=0), tmp_path, resume=True)


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
    (tmp_path / "checkpoint.previous.safetensors").unlink()  # it would take over from a damaged one
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
        (bl.Bernoulli(), "does not fit the network: unexpected log_noise"),
    ):
        model = small(seed=4, outputs=2)
        before = state(model)
        data = line() if isinstance(likelihood, Gaussian) else (line()[0], (line()[1] > 0).float())
        with pytest.raises(ValueError, match=message):
            fit(model, tmp_path, data, resume=True, likelihood=likelihood)
        assert equal(model, before)
