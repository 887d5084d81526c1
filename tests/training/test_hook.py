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
from bayeslim.storage import read_tensors, write_tensors
from bayeslim.training.checkpoint import checkpoint_file, previous_file
from training.problems import blobs, equal, line, state


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


def folder_state(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("same", [True, False], ids=["same object", "another object"])
def test_two_runs_do_not_share_a_folder(same: bool, tmp_path: Path) -> None:
    """The second one is refused after its first epoch, long before it would take a snapshot."""
    folder, phase, seen = tmp_path / "snapshots", sampling_epochs(1, 2), list[int]()
    model = network()
    snapshots = Snapshots(model, folder, when=phase)
    run(model, epochs=5, after_epoch=snapshots, checkpoint=tmp_path / "first")
    before = folder_state(folder)
    assert before.keys() == {"snapshot-000003.safetensors", "snapshot-000004.safetensors"}
    if not same:
        model = network()
        snapshots = Snapshots(model, folder, when=phase)

    def hook(*now: Any) -> None:
        seen.append(now[2].epoch)
        snapshots(*now)

    for options in ({}, {"checkpoint": tmp_path / "second", "resume": True}):
        with pytest.raises(FileExistsError, match="holds snapshot-000004.safetensors of another run: choose another"):
            run(model, epochs=12, seed=1, after_epoch=hook, **options)
    assert seen == [0, 0] and folder_state(folder) == before
    run(model, epochs=12, after_epoch=snapshots, checkpoint=tmp_path / "first", resume=True)  # the one that it is of
    assert len(snapshots) == 4


def test_a_folder_of_an_earlier_version_is_that_of_another_run(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path)
    snapshots.take_(0)
    with pytest.raises(FileExistsError, match="of another run"):
        run(model, epochs=2, after_epoch=snapshots)


def test_snapshots_after_the_checkpoint_that_is_left_are_replaced(tmp_path: Path) -> None:
    """Two of three checkpoints are damaged: the run goes back two epochs, and ends as one that was not disturbed."""
    whole, parts = network(), network()
    run(whole, after_epoch=Snapshots(whole, tmp_path / "whole"))
    options: dict[str, Any] = {"checkpoint": tmp_path / "run", "resume": True, "keep": 3}
    run(parts, epochs=4, after_epoch=Snapshots(parts, tmp_path / "parts"), **options)
    for file in (checkpoint_file(tmp_path / "run"), previous_file(tmp_path / "run")):
        file.unlink()
        file.write_bytes(b"damaged")
    resumed = network()
    snapshots, found = Snapshots(resumed, tmp_path / "parts"), list[int]()

    def hook(*now: Any) -> None:
        snapshots(*now)
        found.append(len(snapshots))

    with pytest.warns(RuntimeWarning, match="Going on from an earlier epoch"):
        run(resumed, after_epoch=hook, **options)
    assert found == [3, 4, 5, 6] and equal(resumed, whole)
    original = Snapshots(whole, tmp_path / "whole")
    assert all(equal(original[i], snapshots[i]) for i in range(6))


def test_a_checkpoint_of_an_earlier_version_is_resumed_with_its_snapshots(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path / "snapshots")
    options: dict[str, Any] = {"after_epoch": snapshots, "checkpoint": tmp_path / "run", "resume": True}
    run(model, epochs=2, **options)
    for file in (*snapshots.files(), checkpoint_file(tmp_path / "run")):
        tensors, facts = read_tensors(file)
        assert facts.pop("run")
        file.unlink()
        write_tensors(file, tensors, facts)
    run(model, epochs=4, **options)
    assert len(snapshots) == 4


def test_every_snapshot_keeps_the_noise_of_its_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, data = nn.Linear(3, 2), line()
    likelihood, noises = bl.likelihoods.Gaussian(2.0, learn_noise=True), list[float]()
    snapshots = Snapshots(model, tmp_path)

    def hook(*now: Any) -> None:
        snapshots(*now)
        noises.append(likelihood.log_noise.item())

    bl.fit(model, data, likelihood=likelihood, epochs=4, lr=0.1, after_epoch=hook, seed=0)
    kept = [snapshots[index].likelihood for index in range(4)]
    assert [one.log_noise.item() for one in kept if isinstance(one, bl.likelihoods.Gaussian)] == noises
    assert len(set(noises)) == 4
    given = bl.likelihoods.Gaussian(2.0, learn_noise=True)
    for source, chosen in ((model, None), (nn.Linear(3, 2), None), (nn.Linear(3, 2), given)):
        variances = bl.predict(Snapshots(source, tmp_path), data[0], likelihood=chosen).sample_variances
        assert variances is not None
        assert (0.5 * variances.log())[:, 0, 0].tolist() == pytest.approx(noises, rel=1e-5)
    fixed = bl.predict(snapshots, data[0], likelihood=bl.likelihoods.Gaussian(0.5))
    torch.testing.assert_close(fixed.aleatoric, torch.full_like(fixed.aleatoric, 0.25))


def test_snapshots_of_a_run_predict_with_its_likelihood(tmp_path: Path) -> None:
    model = network()
    snapshots = Snapshots(model, tmp_path, when=sampling_epochs(2, 2))
    run(model, epochs=20, lr_schedule=cosine_cycles(2), after_epoch=snapshots)
    scores = bl.evaluate(snapshots, blobs(90, seed=1))
    assert scores["accuracy"] > 0.75  # the classes overlap: 0.866 is the best there is
    assert bl.predict(snapshots, blobs()[0]).epistemic.max() > 0
