"""Losses and parameters that stop being finite are named, and nothing is lost."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
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


def lines(folder: Path) -> list[dict[str, Any]]:
    """The records of `history.jsonl` by a reader that takes only what the standard of JSON allows."""
    text = (folder / "history.jsonl").read_text()
    return [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        for line in text.split("\n")[:-1]
    ]


def test_infinite_validation_scores_are_null_on_disk_and_the_run_goes_on(tmp_path: Path) -> None:
    x, y = line()
    far = (x, y * 1e30)  # its square is beyond float32
    options: dict[str, Any] = {"data": (x, y), "likelihood": Gaussian(0.3), "validation": far}
    fit(small(outputs=2), tmp_path, epochs=2, **options)
    resumed = fit(small(outputs=2), tmp_path, resume=True, **options)
    assert resumed["validation_nll"] == [math.inf] * 3
    found = lines(tmp_path)
    assert [record["validation_nll"] for record in found] == [None] * 3
    assert [record["nll"] for record in found] == resumed["nll"]


def test_a_validation_score_that_is_no_number_is_the_worst(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores, model, states = iter([math.nan, 3.0, 1.0, math.nan, 2.0]), small(), list[dict[str, Tensor]]()
    monkeypatch.setattr("bayeslim.training.loop.evaluate", lambda *_, **options: {"nll": next(scores)})
    history = fit(
        model,
        tmp_path,
        epochs=9,
        validation=blobs(),
        patience=2,
        after_epoch=lambda network, *_: states.append(state(network)),
    )
    assert len(history) == 5 and equal(model, states[2])
    assert [record["validation_nll"] for record in lines(tmp_path)] == [None, 3.0, 1.0, None, 2.0]


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
