"""The comparison of all methods on made-up data, at a tiny size."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from bayeslim.runtime.timing import Timing
from bayeslim_papers import experiment
from bayeslim_papers.comparison import command, judge, methods
from bayeslim_papers.comparison.command import Comparison
from bayeslim_papers.comparison.data import Case, smaller
from bayeslim_papers.comparison.methods import METHODS, Outcome
from bayeslim_papers.comparison.results import table
from bayeslim_papers.comparison.training import Job
from bayeslim_papers.record import read_record, write_record
from papers.comparison_cases import CONFIG, TRIED, classes, regression

COMMON = {"data", "method", "seed", "seconds", "nll", "single", "sparsity", "bytes", "slim_bytes"}


def run(config: Comparison, cases: dict[str, list[Case]], out: Path | None = None) -> dict[str, Any]:
    """A run that goes on from what `out` holds."""
    save = functools.partial(write_record, out)
    return experiment.run(config, cases, earlier=read_record(out), save=save)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return run(CONFIG, {"made": [regression(0), regression(1)]})


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"experiment", "config", "device", "torch", "grids", "machine", "costs", "runs"}
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(CONFIG)))
    assert {"device", "versions"} <= set(record["machine"])
    assert [(run["method"], run["seed"]) for run in record["runs"]] == [(m, s) for m in TRIED for s in (0, 1)]
    for run in record["runs"]:
        knob = METHODS[run["method"]].knob
        assert set(run) == COMMON | {"rmse", "coverage95", "validation_nll", knob}
        assert run[knob] == float(min(run["validation_nll"], key=lambda value: run["validation_nll"][value]))
    assert set(record["costs"]["made"]) == set(TRIED)
    json.dumps(record)


def test_networks_learn(record: dict[str, Any]) -> None:
    # Better than the mean, whose error is the targets' deviation 3 sqrt(0.9^2 + 0.3^2) = 2.85. SGHMC, whose learning
    # rate is small, needs more than these 80 steps.
    found = {(run["method"], run["seed"]): run["rmse"] for run in record["runs"] if run["method"] != "sghmc"}
    assert max(found.values()) < 2.8, found


def test_costs_are_times_of_all_networks_against_map(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[list[str]] = []

    def clock(calls: dict[str, Any], **options: Any) -> dict[str, Timing]:
        for call in calls.values():
            call()
        measured.append(list(calls))
        return {name: Timing(2.0, 3.0, 2.5, 3.5) for name in calls}

    monkeypatch.setattr(judge, "interleaved", clock)
    found = judge.costs(CONFIG, ["ensemble", "vdp"], regression(0))
    assert measured == [["map", "ensemble", "vdp"]] * 2
    assert found["vdp"]["train_ratio"] == found["vdp"]["predict_ratio"] == found["ensemble"]["predict_ratio"] == 3
    assert found["ensemble"]["train_ratio"] == 3 * CONFIG.members
    assert found["ensemble"]["train_seconds"] == 2 * CONFIG.members


def test_sizes(record: dict[str, Any]) -> None:
    found = {run["method"]: run for run in record["runs"] if run["seed"] == 0}
    assert found["dfp"]["sparsity"] == pytest.approx(0.5, abs=1 / 40)
    assert found["map"]["sparsity"] == found["sghmc"]["sparsity"] == 0
    assert found["ensemble"]["bytes"] == 2 * found["map"]["bytes"]
    assert found["cvadam"]["bytes"] == 8 * found["map"]["bytes"]
    assert found["dfp"]["bytes"] == 2 * found["map"]["bytes"]
    assert found["graves"]["bytes"] > found["map"]["bytes"]


def test_images_choose_by_the_first_seed() -> None:
    cases = classes((0, 1, 2))
    config = dataclasses.replace(CONFIG, methods=("graves",), seeds=(0, 1, 2), sets=("clouds",), epochs=2)
    runs = run(config, {"clouds": cases})["runs"]
    assert len({run["KL weight"] for run in runs}) == 1
    assert ["validation_nll" in run for run in runs] == [True, False, False]


def test_a_diverged_method_stays_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(METHODS["map"], train=lambda config, jobs: [None for _ in jobs])
    monkeypatch.setitem(METHODS, "map", broken)
    found = run(dataclasses.replace(CONFIG, methods=("map",), seeds=(0,)), {"made": [regression(0)]})
    assert found["runs"][0]["skipped"] == "diverged"
    assert found["runs"][0]["validation_nll"] == {"0.1": None, "1.0": None}
    assert "| map | 0 | diverged |" in table(found)


def test_without_laplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = lambda name: None if name == "laplace" else importlib.util.find_spec(name)  # noqa: E731
    monkeypatch.setattr(methods, "find_spec", absent)
    config = dataclasses.replace(CONFIG, methods=("laplace",), seeds=(0,), epochs=4)
    found: dict[str, Any] = {}
    for _ in range(2):  # the second time it is looked for again, and written once
        found = run(config, {"made": [regression(0)]}, tmp_path / "record.json")
        assert [run["skipped"] for run in found["runs"]] == ["laplace-torch is not installed"]
    assert "| laplace | 0 | laplace-torch is not installed |" in table(found)


def test_finished_runs_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "record.json"
    cases = [regression(seed) for seed in (0, 1, 2)]
    config = dataclasses.replace(CONFIG, methods=("map",), seeds=(0, 1), epochs=4)
    before = run(config, {"made": cases[:2]}, out)
    trained: list[int] = []

    def counting(config: Comparison, jobs: list[Job], train: Any) -> list[Outcome | None]:
        trained.extend(job.seed for job in jobs)
        return train(config, jobs)

    original = METHODS["map"]
    monkeypatch.setitem(
        METHODS, "map", dataclasses.replace(original, train=functools.partial(counting, train=original.train))
    )
    more = dataclasses.replace(config, methods=("map", "graves"), seeds=(1, 2))
    after = run(more, {"made": cases}, out)
    assert set(trained) == {2}
    assert after["runs"][:2] == before["runs"]
    assert after == json.loads(out.read_text())
    assert after["config"]["methods"] == ["map", "graves"] and after["config"]["seeds"] == [0, 1, 2]
    assert set(after["costs"]["made"]) == {"map", "graves"}
    with pytest.raises(ValueError, match="`epochs` is 4 in one and 5 in another; write them to different files"):
        run(dataclasses.replace(config, epochs=5), {"made": cases}, out)


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "uci_cases", lambda name, splits, root, device: [regression(s) for s in splits])
    monkeypatch.setattr(command, "image_cases", lambda name, seeds, root, device: classes(seeds))
    file, both = str(tmp_path / "results" / "uci.json"), str(tmp_path / "both.json")
    command.main(["--quick", "--splits", "1-1", "--methods", "map", "--out", file])
    found = json.loads(Path(file).read_text())
    assert [(one["data"], one["method"], one["seed"]) for one in found["runs"]] == [("bostonHousing", "map", 1)]
    for method in ("map", "dfp"):
        file = str(tmp_path / f"{method}.json")
        command.main(["--quick", "--data", "mnist", "--methods", method, "--epochs", "4", "--out", file])
    command.main(["--merge", str(tmp_path / "map.json"), str(tmp_path / "dfp.json"), "--out", both])
    found = json.loads(Path(both).read_text())
    assert [(one["method"], one["seed"]) for one in found["runs"]] == [("map", 0), ("dfp", 0)]
    assert found["config"]["hidden"] == [300, 100] and found["config"]["sparsity"] == 0.9
    assert set(found["costs"]["mnist"]) == {"map", "dfp"} and "### mnist" in capsys.readouterr().out


def test_smaller_cuts_everything() -> None:
    (case,) = classes((0,))
    small = smaller(case, train=10, test=5)
    lengths = [len(part) for part in (*small.train, *small.test, small.outliers) if isinstance(part, Tensor)]
    assert lengths == [10, 10, 5, 5, 5]
