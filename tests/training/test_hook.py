"""The hook after every epoch, and samplers in the training loop."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import SGHMC, SGLD, CVAdam
from bayeslim.predictive.snapshots import Snapshots
from bayeslim.schedules import Progress, cosine_cycles, sampling_epochs
from training.problems import blobs, equal, state


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def run(model: nn.Module, kind: Any = CVAdam, **options: Any) -> bl.History:
    optimizer = functools.partial(kind, num_data=48, lr=0.2, weight_decay=1e-3, seed=4)
    fixed: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 6, "batch_size": 16, "seed": 0}
    return bl.fit(model, blobs(), optimizer=optimizer, **(fixed | options))


def test_it_sees_the_end_of_every_epoch_before_validation() -> None:
    model, seen = network(), list[tuple[int, int, float]]()

    def hook(network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        assert network is model and isinstance(optimizer, CVAdam)
        seen.append((progress.step, progress.epoch, progress.fraction))
        with torch.no_grad():
            model.get_parameter("3.weight").zero_()
            model.get_parameter("3.bias").zero_()

    history = run(model, after_epoch=hook, epochs=3, validation=blobs(12, seed=1))
    assert seen == [(2, 0, 2 / 9), (5, 1, 5 / 9), (8, 2, 8 / 9)]
    assert [record["validation_nll"] for record in history.records] == pytest.approx(
        [torch.tensor(3.0).log().item()] * 3
    )


class Interruption(Exception):
    """Stands for whatever ends a run."""


def interrupted_in(epoch: int) -> Callable[[Progress], float]:
    def schedule(progress: Progress) -> float:
        if (progress.epoch, progress.step % progress.steps_per_epoch) == (epoch, 1):
            raise Interruption
        return cosine_cycles(2)(progress)

    return schedule


@pytest.mark.parametrize("kind", [CVAdam, SGLD, SGHMC])
def test_an_interrupted_run_ends_with_the_same_weights_and_snapshots(kind: Any, tmp_path: Path) -> None:
    phase = sampling_epochs(2, 2)
    whole = network()
    run(whole, kind, lr_schedule=cosine_cycles(2), after_epoch=Snapshots(whole, tmp_path / "whole", when=phase))
    parts = network()
    snapshots = Snapshots(parts, tmp_path / "parts", when=phase)
    options: dict[str, Any] = {"after_epoch": snapshots, "checkpoint": tmp_path / "run", "resume": True}
    for epoch in (0, 2, 5):
        with pytest.raises(Interruption):
            run(parts, kind, lr_schedule=interrupted_in(epoch), **options)
    run(parts, kind, lr_schedule=cosine_cycles(2), **options)
    assert equal(whole, parts)
    original = Snapshots(whole, tmp_path / "whole")
    assert len(original) == len(snapshots) == 4
    assert all(equal(original[i], snapshots[i]) for i in range(4))
    assert not equal(original[0], original[3])


def test_a_hook_that_fails_after_its_snapshot_is_called_again(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path / "snapshots")
    calls: list[int] = []

    def hook(network: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> None:
        snapshots(network, optimizer, progress)
        calls.append(progress.epoch)
        if calls == [0, 1]:
            raise Interruption

    options: dict[str, Any] = {"after_epoch": hook, "checkpoint": tmp_path / "run", "resume": True, "epochs": 3}
    with pytest.raises(Interruption):
        run(model, **options)
    run(model, **options)
    assert calls == [0, 1, 1, 2] and len(snapshots) == 3
    assert equal(snapshots[2], state(model))


def test_snapshots_of_a_run_predict_with_its_likelihood(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path, when=sampling_epochs(2, 2))
    run(model, epochs=20, lr_schedule=cosine_cycles(2), after_epoch=snapshots)
    scores = bl.evaluate(snapshots, blobs(90, seed=1))
    assert scores["accuracy"] > 0.75  # the classes overlap: 0.866 is the best there is
    assert bl.predict(snapshots, blobs()[0]).epistemic.max() > 0
