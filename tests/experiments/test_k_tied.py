"""The k-tied experiment on made-up images, at a tiny size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.experiments import k_tied
from bayeslim.experiments.k_tied import Config, Images
from bayeslim.posteriors import KTied, MeanField

CONFIG = Config(
    sizes=(16, 12, 12, 10),
    batch_size=64,
    epochs=40,
    lr=0.02,
    anneal_rate=1e-4,
    probe_steps=(12, 24, 36),
    samples=20,
    seeds=(0, 1),
)


def images(seed: int = 0) -> Images:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 16, generator=generator)

    def part(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (count,), generator=generator)
        return patterns[y] + 0.3 * torch.randn(count, 16, generator=generator), y

    return Images(part(320), part(100), part(200))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return k_tied.run(CONFIG, images())


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"config", "device", "torch", "paper", "runs"}
    assert record["config"] == dataclasses.asdict(CONFIG)
    assert [(run["seed"], run["posterior"]) for run in record["runs"]] == [
        (seed, name) for seed in (0, 1) for name in ("mean-field", "1-tied", "2-tied", "3-tied")
    ]
    for run in record["runs"]:
        assert set(run) - {"truncated"} == {"seed", "posterior", "annealed", "probes", "parameters", "seconds"}
        assert set(run["annealed"]) == {"nelbo", "nll", "accuracy"}
        assert [probe["step"] for probe in run["probes"]] == [12, 24, 36]
        assert all(
            set(probe) == {"step", "snr", "snr_median", "validation_nelbo"} and probe["snr"] > 1
            for probe in run["probes"]
        )
        assert ("truncated" in run) == (run["posterior"] == "mean-field")
        if "truncated" in run:
            assert list(run["truncated"]) == ["rank 1", "rank 2", "rank 3"]
            bounds = {run["annealed"]["nelbo"], *(scores["nelbo"] for scores in run["truncated"].values())}
            assert len(bounds) == 4
    assert json.loads(json.dumps(record, allow_nan=False))["runs"] == record["runs"]


def test_parameters(record: dict[str, Any]) -> None:
    kernels, biases = 16 * 12 + 12 * 12 + 12 * 10, 2 * 34
    factors = 16 + 12 + 12 + 12 + 12 + 10
    found = {run["posterior"]: run["parameters"] for run in record["runs"]}
    assert found["mean-field"] == 2 * kernels + biases
    assert [found[f"{k}-tied"] for k in (1, 2, 3)] == [kernels + k * factors + biases for k in (1, 2, 3)]


def test_the_networks_learn(record: dict[str, Any]) -> None:
    """Far above the tenth that guessing gives, and with a better bound than at the start."""
    for run in record["runs"]:
        assert run["annealed"]["accuracy"] > 60
        assert run["annealed"]["nll"] < 1.5
        first, *_, last = (probe["validation_nelbo"] for probe in run["probes"])
        assert last < first


def test_runs_are_reproducible() -> None:
    small = dataclasses.replace(CONFIG, ranks=(2,), epochs=2, seeds=(3,))
    first, second = (k_tied.run(small, images())["runs"][0] for _ in range(2))
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert "truncated" not in first


def test_scores_are_the_formulas() -> None:
    """One sample: the bound is the mean log loss plus the divergence per datum."""
    torch.manual_seed(0)
    model = k_tied.build(CONFIG, 0, 0.05, "cpu")
    x, y = images().test
    found = k_tied.score(model, (x, y), num_data=320, samples=1)
    torch.manual_seed(0)
    with torch.no_grad():
        log_p = model(x).log_softmax(-1).double()
    nll = -log_p[torch.arange(200), y].mean().item()
    assert found["nll"] == pytest.approx(nll, rel=1e-6)
    assert found["nelbo"] == pytest.approx(nll + bl.kl(model).item() / 320, rel=1e-6)
    assert found["accuracy"] == pytest.approx(100 * (log_p.argmax(1) == y).double().mean().item())
    many = k_tied.score(model, (x, y), num_data=320, samples=50)
    assert many["nll"] < many["nelbo"] - bl.kl(model).item() / 320  # the average prediction is better


@pytest.mark.parametrize("k", [0, 2])
def test_the_networks_are_those_of_the_paper(k: int) -> None:
    torch.manual_seed(0)
    model = k_tied.build(Config(), k, 0.01, "cpu")
    found = [module for module in model.modules() if isinstance(module, bl.layers.BayesLayer)]
    assert [tuple(layer.weight.mean().shape) for layer in found] == [(400, 784), (400, 400), (10, 400)]
    for layer in found:
        assert type(layer.weight) is (KTied if k else MeanField)
        assert isinstance(layer.bias, MeanField)
        assert layer.prior.config() == {"mean": 0.0, "std": 0.2}
        assert layer.estimator is bl.weight_sample
        assert layer.weight.variance().sqrt().mean().item() == pytest.approx(0.01, rel=0.02)
    assert sum(p.numel() for p in model.parameters()) == (484_008 if k else 956_820)


def test_the_table_shows_ours_beside_the_papers(record: dict[str, Any]) -> None:
    text = k_tied.table(record)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 3 + 4 + 4 + 4
    tied = next(row for row in rows if row.startswith("| 2-tied"))
    values = [run["annealed"]["nll"] for run in record["runs"] if run["posterior"] == "2-tied"]
    assert f"{sum(values) / 2:.4g} +- " in tied and "(0.129)" in tied
    assert "(7500, 140, 4.3)" in text and "(3.41)" in text
    assert k_tied.table(json.loads(json.dumps(record))) == text
    alone = record | {"runs": record["runs"][:4]}
    assert "+-" not in k_tied.table(alone)


def test_records_of_seeds_and_ranks_merge(record: dict[str, Any]) -> None:
    parts = [
        record | {"config": record["config"] | {"seeds": (seed,)}, "runs": record["runs"][4 * seed : 4 * seed + 4]}
        for seed in (0, 1)
    ]
    joined = k_tied.merged(parts)
    assert joined["runs"] == record["runs"]
    assert joined["config"]["seeds"] == [0, 1] and joined["config"]["ranks"] == [0, 1, 2, 3]
    assert k_tied.table(joined) == k_tied.table(record)


def test_the_command_line_merges_files(
    record: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        part = record | {"config": record["config"] | {"seeds": (seed,)}, "runs": record["runs"][4 * seed :][:4]}
        (tmp_path / f"{seed}.json").write_text(json.dumps(part))
    files = [str(tmp_path / f"{seed}.json") for seed in (0, 1)]
    k_tied.main(["--merge", *files, "--out", str(tmp_path / "all" / "both.json")])
    assert json.loads((tmp_path / "all" / "both.json").read_text())["runs"] == record["runs"]
    assert "| 2-tied |" in capsys.readouterr().out


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.lr = 1.0  # pyright: ignore[reportAttributeAccessIssue]
