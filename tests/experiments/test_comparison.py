"""The comparison of all methods on made-up data, at a tiny size."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.experiments.comparison import Config, judge, methods
from bayeslim.experiments.comparison import command as comparison
from bayeslim.experiments.comparison.data import Case, likelihood_for, parts
from bayeslim.experiments.comparison.judge import judged, validation_nll
from bayeslim.experiments.comparison.methods import METHODS, Outcome
from bayeslim.experiments.comparison.table import table
from bayeslim.experiments.comparison.training import Job, by_sampler, network, train_side_by_side
from bayeslim.likelihoods import Gaussian, likelihood_of, remember_likelihood_
from bayeslim.predictive import Snapshots
from bayeslim.timing import Timing

TRIED = ("map", "mc-dropout", "ensemble", "graves", "ard", "vdp", "cvadam", "sghmc", "dfp")
CONFIG = Config(
    ("made",),
    TRIED,
    (0, 1),
    hidden=(10,),
    epochs=8,
    batch_size=20,
    lr=2e-2,
    members=2,
    samples=8,
    per_cycle=2,
    rounds=3,
)
COMMON = {"data", "method", "seed", "seconds", "nll", "single", "sparsity", "bytes", "slim_bytes"}


def regression(seed: int) -> Case:
    """A noisy line in three inputs, standardised targets, whose unit is 3."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(240, 3, generator=generator)
    y = 0.9 * x[:, :1] + 0.3 * torch.randn(240, 1, generator=generator)
    return Case(seed, (x[:200], y[:200]), (x[200:], y[200:]), unit=3.0)


def classes(seeds: tuple[int, ...]) -> list[Case]:
    """Two clouds, and outliers that lie between them."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 2
    x = torch.randn(240, 3, generator=generator) + 4 * (y[:, None] - 0.5)
    strange = 0.1 * torch.randn(30, 3, generator=generator)
    train, test = (x[:200], y[:200]), (x[200:], y[200:])
    return [Case(seed, train, test, strange) for seed in seeds]


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return comparison.run(CONFIG, {"made": [regression(0), regression(1)]})


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"config", "grids", "machine", "costs", "runs"}
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


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {*TRIED, "laplace"}))
def test_the_other_methods_run(name: str) -> None:
    method, config = METHODS[name], dataclasses.replace(CONFIG, epochs=2)
    jobs = [Job(regression(seed).train, method.grid[0], seed) for seed in (0, 1)]
    for outcome, seed in zip(method.train(config, jobs), (0, 1), strict=True):
        assert outcome is not None
        scores = judged(config, method, outcome, regression(seed))
        assert scores is not None and all(math.isfinite(value) for value in scores.values())
    method.step(config, jobs[0])()


@pytest.mark.parametrize("name", ["map", "mc-dropout", "ensemble", "ard", "vdp", "sghmc", "dfp"])
def test_classes_and_outliers(name: str) -> None:
    method, cases = METHODS[name], classes((0, 1))
    outcomes = method.train(CONFIG, [Job(case.train, method.grid[-1], case.seed) for case in cases])
    for case, outcome in zip(cases, outcomes, strict=True):
        assert outcome is not None
        scores = judged(CONFIG, method, outcome, case)
        assert scores is not None
        assert scores["accuracy"] > 0.9 and scores["single"] > 0.9 and scores["ood_auroc"] > 0.9, scores
        assert {"nll", "ece", "brier"} <= set(scores)


def test_images_choose_by_the_first_seed() -> None:
    cases = classes((0, 1, 2))
    config = dataclasses.replace(CONFIG, methods=("graves",), seeds=(0, 1, 2), sets=("clouds",))
    runs = comparison.run(config, {"clouds": cases})["runs"]
    assert len({run["KL weight"] for run in runs}) == 1
    assert ["validation_nll" in run for run in runs] == [True, False, False]


def test_splits_side_by_side_train_as_alone() -> None:
    jobs = [Job(regression(seed).train, 1.0, seed) for seed in (0, 1)]

    def trained(own: list[Job]) -> list[nn.Sequential]:
        models = [network(CONFIG, job, estimator=bl.mean_only) for job in own]
        train_side_by_side(CONFIG, models, own, [job.value for job in own])
        return models

    together, alone = trained(jobs), [*trained(jobs[:1]), *trained(jobs[1:])]
    for left, right in zip(together, alone, strict=True):
        for name, value in left.state_dict().items():
            torch.testing.assert_close(value, right.state_dict()[name], rtol=1e-3, atol=1e-4)
        noises = [likelihood_of(model).state_dict()["log_noise"] for model in (left, right)]
        torch.testing.assert_close(*noises, rtol=1e-3, atol=1e-4)


def test_map_is_ridge_regression() -> None:
    """A linear network: `w = (X'X + value noise^2 I)^-1 X'y`, columns centred, `noise^2` the mean squared residual."""
    x, y = regression(0).train
    config = dataclasses.replace(CONFIG, hidden=(), epochs=250, batch_size=200, lr=0.1)
    values = (1.0, 100.0)
    outcomes = METHODS["map"].train(config, [Job((x, y), value, 0) for value in values])
    for value, outcome in zip(values, outcomes, strict=True):
        assert outcome is not None and isinstance(outcome.whole, nn.Sequential)
        layer = outcome.whole[0]
        assert isinstance(layer, nn.Linear)
        likelihood = likelihood_of(outcome.whole)
        assert isinstance(likelihood, Gaussian)
        noise = likelihood.log_noise.mul(2).exp()
        assert noise.item() == pytest.approx((y - layer(x)).square().mean().item(), rel=0.01)
        inputs, targets = x - x.mean(0), y - y.mean(0)
        exact = torch.linalg.solve(inputs.T @ inputs + value * noise * torch.eye(3), inputs.T @ targets)
        torch.testing.assert_close(layer.weight, exact.T, rtol=0.01, atol=2e-3)


def test_ensemble_has_the_mean_noise_variance() -> None:
    (outcome,) = METHODS["ensemble"].train(CONFIG, [Job(regression(0).train, 1.0, 0)])
    assert outcome is not None and isinstance(outcome.whole, Snapshots) and len(outcome.whole) == 2
    assert not torch.equal(outcome.whole[0]["0.weight"], outcome.whole[1]["0.weight"])
    first, second = nn.Linear(3, 1), nn.Linear(3, 1)
    remember_likelihood_(first, Gaussian(1.0))
    remember_likelihood_(second, Gaussian(3.0))
    joined = likelihood_of(methods._joined([first, second]).model)
    assert isinstance(joined, Gaussian)
    assert joined.log_noise.exp().item() == pytest.approx(math.sqrt(5.0))


def constant(value: float, noise: float) -> nn.Sequential:
    """A network that predicts N(value, noise^2) everywhere."""
    model = nn.Sequential(nn.Linear(3, 1))
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(value)
    remember_likelihood_(model, Gaussian(noise))
    return model


def test_scores_are_in_the_original_unit() -> None:
    x, y = torch.zeros(2, 3), torch.tensor([[1.0], [-1.0]])
    model = constant(0.0, 0.5)
    scores = judged(CONFIG, METHODS["map"], Outcome(model, model), Case(0, (x, y), (x, y), unit=3.0))
    assert scores is not None
    assert scores["rmse"] == scores["single"] == pytest.approx(3.0)
    density = torch.distributions.Normal(0.0, 1.5).log_prob(3 * y)
    assert scores["nll"] == pytest.approx(-density.mean().item(), rel=1e-5)
    assert scores["coverage95"] == 0


def test_what_diverged_is_said() -> None:
    model = constant(math.inf, 1.0)
    case = regression(0)
    outcome = Outcome(model, model)
    assert judged(CONFIG, METHODS["map"], outcome, case) is None
    assert validation_nll(CONFIG, METHODS["map"], outcome, case.test) == math.inf
    assert validation_nll(CONFIG, METHODS["map"], None, case.test) == math.inf
    wild = dataclasses.replace(CONFIG, clip_norm=1e30)
    assert by_sampler(wild, Job(case.train, 1e6, 0), "sghmc") is None


def test_a_diverged_method_stays_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataclasses.replace(METHODS["map"], train=lambda config, jobs: [None for _ in jobs])
    monkeypatch.setitem(METHODS, "map", broken)
    found = comparison.run(dataclasses.replace(CONFIG, methods=("map",)), {"made": [regression(0)]})
    assert found["runs"][0]["skipped"] == "diverged"
    assert found["runs"][0]["validation_nll"] == {"0.1": None, "1.0": None}
    assert "| map | 0 | diverged |" in table(found)


def test_parts_are_a_partition() -> None:
    case = regression(3)
    (x, _), (held, _) = parts(case)
    assert (len(x), len(held)) == (160, 40)
    rows = {tuple(row) for row in torch.cat([x, held]).tolist()}
    assert rows == {tuple(row) for row in case.train[0].tolist()}
    assert torch.equal(parts(case)[1][0], held)
    assert not torch.equal(parts(case._replace(seed=4))[1][0], held)


def test_likelihoods() -> None:
    assert isinstance(likelihood_for(regression(0).train), Gaussian)
    assert isinstance(likelihood_for(classes((0,))[0].train), bl.Categorical)


@pytest.mark.parametrize("name", ["ensemble", "cvadam", "dfp"])
def test_timing_predicts_by_as_many_networks(name: str) -> None:
    method, job = METHODS[name], Job(regression(0).train, METHODS[name].grid[0], 0)
    (outcome,) = method.train(CONFIG, [job])
    untrained = method.untrained(CONFIG, job)
    assert outcome is not None and isinstance(outcome.whole, Snapshots) and isinstance(untrained, Snapshots)
    assert len(outcome.whole) == len(untrained)


def test_without_laplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent = lambda name: None if name == "laplace" else importlib.util.find_spec(name)  # noqa: E731
    monkeypatch.setattr(methods, "find_spec", absent)
    config = dataclasses.replace(CONFIG, methods=("laplace",), epochs=4)
    found: dict[str, Any] = {}
    for _ in range(2):  # the second time it is looked for again, and written once
        found = comparison.run(config, {"made": [regression(0)]}, tmp_path / "record.json")
        assert [run["skipped"] for run in found["runs"]] == ["laplace-torch is not installed"]
    assert "| laplace | 0 | laplace-torch is not installed |" in table(found)


def test_finished_runs_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "record.json"
    cases = [regression(seed) for seed in (0, 1, 2)]
    config = dataclasses.replace(CONFIG, methods=("map",), seeds=(0, 1), epochs=4)
    before = comparison.run(config, {"made": cases[:2]}, out)
    trained: list[int] = []

    def counting(config: Config, jobs: list[Job], train: Any) -> list[Outcome | None]:
        trained.extend(job.seed for job in jobs)
        return train(config, jobs)

    original = METHODS["map"]
    monkeypatch.setitem(
        METHODS, "map", dataclasses.replace(original, train=functools.partial(counting, train=original.train))
    )
    more = dataclasses.replace(config, methods=("map", "graves"), seeds=(1, 2))
    after = comparison.run(more, {"made": cases}, out)
    assert set(trained) == {2}
    assert after["runs"][:2] == before["runs"]
    assert after == json.loads(out.read_text())
    assert after["config"]["methods"] == ["map", "graves"] and after["config"]["seeds"] == [0, 1, 2]
    assert set(after["costs"]["made"]) == {"map", "graves"}
    with pytest.raises(ValueError, match="`epochs` is 4 in one and 5 in another; write them to different files"):
        comparison.run(dataclasses.replace(config, epochs=5), {"made": cases}, out)


def test_an_interrupted_run_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(config: Config, jobs: list[Job]) -> list[Outcome | None]:
        raise KeyboardInterrupt

    out = tmp_path / "record.json"
    monkeypatch.setitem(METHODS, "ard", dataclasses.replace(METHODS["ard"], train=stop))
    config = dataclasses.replace(CONFIG, methods=("map", "ard"), epochs=4)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(config, {"made": [regression(0)]}, out)
    assert [run["method"] for run in json.loads(out.read_text())["runs"]] == ["map"]


def row(data: str, method: str, seed: int, rmse: float, nll: float, coverage: float) -> dict[str, Any]:
    sizes = {"sparsity": 0.25, "bytes": 2048, "slim_bytes": 1024, "single": rmse, "seconds": 1.0}
    return {"data": data, "method": method, "seed": seed, "rmse": rmse, "nll": nll, "coverage95": coverage} | sizes


def test_table_and_ranks() -> None:
    runs = [
        row("a", "map", 0, 1.0, 3.0, 0.80),
        row("a", "map", 1, 3.0, 3.0, 0.80),
        row("a", "ard", 0, 1.5, 2.0, 0.99),
        row("b", "map", 0, 1.0, 1.0, 0.95),
        row("b", "ard", 0, 2.0, 0.5, 0.90),
        row("b", "vdp", 0, 0.1, 0.1, 0.95),
    ]
    text = table({"runs": runs, "costs": {"a": {"ard": {"train_ratio": 2.345, "predict_ratio": 10.0}}}})
    assert "| map | 2 | 2 ± 1 | 3 ± 0 | 0.8 ± 0 | 2 ± 1 | 25 | 2 | 1 | - | - |" in text
    assert "| ard | 1 | 1.5 | 2 | 0.99 | 1.5 | 25 | 2 | 1 | 2.35 | 10 |" in text
    ranks = text.split("### Mean rank")[1]
    assert "| map | 1.5 | 2 | 1.5 |" in ranks and "| ard | 1.5 | 1 | 1.5 |" in ranks
    assert "vdp" not in ranks


def test_sizes_are_plain_numbers() -> None:
    runs = [row("a", "map", 0, 1.0, 3.0, 0.8) | {"bytes": 12_800_900, "slim_bytes": 534_222}]
    assert "| 25 | 12501 | 521.7 |" in table({"runs": runs, "costs": {}})


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(comparison, "uci_cases", lambda name, splits, root, device: [regression(s) for s in splits])
    monkeypatch.setattr(comparison, "image_cases", lambda name, seeds, root, device: classes(seeds))
    files = [tmp_path / "results" / f"{name}.json" for name in ("uci", "mnist")]
    found: dict[str, Any] = {}
    for file in files:
        comparison.main(["--quick", "--data", file.stem, "--methods", "map", "dfp", "--out", str(file)])
        found = json.loads(file.read_text())
        assert [(run["method"], run["seed"]) for run in found["runs"]] == [("map", 0), ("dfp", 0)]
    assert found["config"]["hidden"] == [300, 100] and found["config"]["sparsity"] == 0.9
    both = tmp_path / "both.json"
    comparison.main(["--merge", *map(str, files), "--out", str(both)])
    assert set(json.loads(both.read_text())["costs"]) == {"bostonHousing", "mnist"}
    assert "### mnist" in capsys.readouterr().out


def test_merging_two_halves_of_the_methods() -> None:
    config = {"sets": ["a"], "methods": ["map"], "seeds": [0], "epochs": 4}
    halves = [
        {"config": config, "costs": {"a": {"map": {"train_ratio": 1.0}}}, "runs": [1]},
        {"config": config | {"methods": ["ard"]}, "costs": {"a": {"ard": {"train_ratio": 2.0}}}, "runs": [2]},
    ]
    joined = comparison.merged(halves)
    assert joined["config"] == config | {"methods": ["map", "ard"]}
    assert joined["costs"] == {"a": {"map": {"train_ratio": 1.0}, "ard": {"train_ratio": 2.0}}}
    assert joined["runs"] == [1, 2] and halves[0]["runs"] == [1]


def test_smaller_cuts_everything() -> None:
    (case,) = classes((0,))
    small = comparison.smaller(case, train=10, test=5)
    lengths = [len(part) for part in (*small.train, *small.test, small.outliers) if isinstance(part, Tensor)]
    assert lengths == [10, 10, 5, 5, 5]
