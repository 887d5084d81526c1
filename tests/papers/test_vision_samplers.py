"""The samplers experiment on CIFAR-10, by a narrow network on made-up images."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import CVAdam
from bayeslim_papers import experiment, training
from bayeslim_papers.samplers import cifar as samplers
from bayeslim_papers.samplers.cifar import METHODS, PAPER, Samplers, sparsity
from bayeslim_papers.samplers.cifar_table import table
from bayeslim_papers.tables import spread

SMALL, DATA = Samplers.quick("cpu")
SMALL = replace(SMALL, methods=("cvadam", "dfp-90", "sgd"), seeds=(0, 1))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return experiment.run(SMALL, DATA)


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"experiment", "config", "device", "torch", "paper", "tolerance", "runs"}
    assert record["config"] == json.loads(json.dumps(asdict(SMALL))) | {"images": [128, 64]}
    assert [(run["method"], run["seed"]) for run in record["runs"]] == [
        (method, seed) for seed in (0, 1) for method in ("cvadam", "dfp-90", "sgd")
    ]
    assert record["config"]["epochs"] == 6 and all(run["epochs"] == 6 for run in record["runs"])
    for run in record["runs"]:
        assert run["networks"] == len(run["each"]) == {"cvadam": 4, "dfp-90": 2, "sgd": 1}[run["method"]]
        assert run["single"]["accuracy"] == run["each"][-1]
        assert run["steps"] == 6 * 8 and run["seconds"] > 0
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_networks_learn(record: dict[str, Any]) -> None:
    """Far above the quarter that guessing gives."""
    for run in record["runs"]:
        assert run["single"]["accuracy"] > 60 and run["losses"][-1] < 0.7 * run["losses"][0]


def test_pruned_networks_are_as_sparse_as_named(record: dict[str, Any]) -> None:
    weights = sum(p.numel() for p in bl.models.resnet18(width=2).parameters() if p.ndim > 1)
    for run in record["runs"]:
        expected = METHODS[run["method"]].sparsity or 0.0
        assert expected <= run["sparsity"] < expected + 2 / weights


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_what_they_are_called(name: str) -> None:
    """The optimiser, and who may come back after pruning."""
    plan, model = METHODS[name], nn.Linear(10, 10)
    optimizer = SMALL.optimizer(plan, model, 128, seed=0)
    assert isinstance(optimizer, torch.optim.SGD if name.startswith("sgd") else CVAdam)
    assert optimizer.param_groups[0]["weight_decay"] == 5e-4
    assert plan.cyclical == (name != "sgd")
    assert (plan.sparsity is None) == (not name.startswith("d"))
    if plan.sparsity is not None:
        pruner = SMALL.pruner(plan, model)
        assert pruner.feedback == name.startswith("dpf") and plan.sparsity == int(name[-2:]) / 100
        assert pruner.target is not None and pruner.target.by_epoch == pruner.feedback_until == SMALL.last_cycle == 3


def test_feedback_changes_what_is_pruned() -> None:
    longer = replace(SMALL, epochs=10)
    losses = [longer.measured(name, 0, DATA)["losses"] for name in ("dfp-90", "dpf-90")]
    assert losses[0][:2] == losses[1][:2] and losses[0] != losses[1]


def test_an_interrupted_pruning_ends_as_one_that_never_stopped(
    record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks, snapshots and the sampler's state go on from the checkpoint."""
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)

    def stop(text: str) -> None:
        if "epoch 5 of 6" in text:
            raise KeyboardInterrupt

    only = replace(SMALL, methods=("dfp-90",), seeds=(0,))
    with pytest.raises(KeyboardInterrupt):
        experiment.run(only, DATA, checkpoints=tmp_path, say=stop)
    said: list[str] = []
    found = experiment.run(only, DATA, checkpoints=tmp_path, say=said.append)["runs"][0]
    assert said[0] == "samplers-cifar dfp-90 seed 0: going on after epoch 4"
    whole = next(run for run in record["runs"] if run["method"] == "dfp-90" and run["seed"] == 0)
    timed = {"seconds", "epoch_seconds"}
    assert {k: v for k, v in found.items() if k not in timed} == {k: v for k, v in whole.items() if k not in timed}


def test_the_table_shows_ours_beside_the_papers(record: dict[str, Any]) -> None:
    text = table(record)
    row = next(line for line in text.splitlines() if line.startswith("| dfp-90"))
    values = [run["accuracy"] for run in record["runs"] if run["method"] == "dfp-90"]
    assert f"{spread(values)} (93.9, channels)" in row and " 90 ± " in row
    assert "Not comparable: `dfp` and `dpf` set single weights to zero here." in text
    assert "6 epochs in 2 cycles, batches of 16, learning rate 0.3; the paper has 200, 4, 64 and 1." in text


def test_a_gap_beyond_the_tolerance_is_shown(record: dict[str, Any]) -> None:
    """What prunes other units than the paper does is not measured by it."""
    pruned = [run | {"accuracy": 95.0} for run in record["runs"] if run["method"] == "dfp-90"]
    for accuracy, shown in ((95.0, "cvadam -0.50"), (94.9, "cvadam -0.60 (below)"), (96.6, "cvadam +1.10")):
        runs = [run | {"accuracy": accuracy} for run in record["runs"] if run["method"] == "cvadam"]
        text = f"Points over the paper, 0.5 less allowed: {shown}."
        assert table(record | {"runs": runs}).endswith(text)
        assert text in table(record | {"runs": runs + pruned})
    assert "Points over" not in table(record | {"runs": pruned})


def test_the_papers_settings_and_numbers() -> None:
    full = Samplers()
    assert (full.epochs, full.cycles, full.batch_size, full.lr, full.weight_decay) == (200, 4, 64, 1.0, 5e-4)
    assert full.last_cycle == 150 and full.cycles * full.per_cycle == 12 and full.temperature == "cold"
    assert set(PAPER["accuracy %"]) == set(METHODS) - {"sgd-snapshots"}


def test_unknown_methods_and_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match="`methods` has no 'sm-90': choose from cvadam, dfp-70"):
        Samplers(methods=("sm-90",))
    with pytest.raises(ValueError, match="`precision` must be one of float32, bfloat16, got 'half'"):
        Samplers(precision="half")


def test_sparsity_counts_kernels_alone() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight[0] = 0  # pyright: ignore[reportArgumentType, reportIndexIssue]
    assert sparsity(model) == 4 / 10


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two processes, joined; the settings that were given are those of the record."""
    for method in ("cvadam", "sgd"):
        file = str(tmp_path / f"{method}.json")
        options = ["--methods", method, "--seeds", "3-3", "--epochs", "2", "--lr", "0.2", "--batch-size", "32"]
        samplers.main(["--quick", "--eager", *options, "--out", file])
        config = json.loads(Path(file).read_text())["config"]
        assert (config["seeds"], config["epochs"], config["lr"], config["batch_size"]) == ([3], 2, 0.2, 32)
        assert config["graph"] is False
    samplers.main(["--merge", *(str(tmp_path / f"{name}.json") for name in ("cvadam", "sgd")), "--out", file])
    joined = json.loads(Path(file).read_text())
    assert [run["method"] for run in joined["runs"]] == joined["config"]["methods"] == ["cvadam", "sgd"]
    assert "2 epochs in 2 cycles, batches of 32" in capsys.readouterr().out
