"""The k-tied experiment's record, table and command line, by its MNIST part on made-up images."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.posteriors import KTied, MeanField
from bayeslim_papers import experiment
from bayeslim_papers.k_tied.command import PARTS, main
from bayeslim_papers.k_tied.mnist import Mnist
from bayeslim_papers.k_tied.paper import PAPER, rows
from bayeslim_papers.k_tied.results import table

PART, DATA = Mnist.quick(None, "cpu")
PART = dataclasses.replace(PART, seeds=(0, 1))
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return experiment.run(PART, DATA)


def test_the_record(record: dict[str, Any]) -> None:
    assert set(record) == {"part", "config", "device", "torch", "paper", "runs"}
    assert record["part"] == "mnist" and record["device"] == "cpu"
    assert record["config"] == json.loads(json.dumps(dataclasses.asdict(PART)))
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
    small = dataclasses.replace(PART, ranks=(2,), epochs=2, seeds=(3,))
    first, second = (experiment.run(small, DATA)["runs"][0] for _ in range(2))
    assert first | {"seconds": 0} == second | {"seconds": 0}
    assert "truncated" not in first


@pytest.mark.parametrize("k", [0, 2])
def test_the_networks_are_those_of_the_paper(k: int) -> None:
    torch.manual_seed(0)
    model = Mnist().build(k)
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
    text = table(record)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == 3 + 4 + 4 + 4
    tied = next(row for row in lines if row.startswith("| 2-tied"))
    values = [run["annealed"]["nll"] for run in record["runs"] if run["posterior"] == "2-tied"]
    assert f"{sum(values) / 2:.4g} ± " in tied and "(0.129)" in tied
    assert "(7500, 140, 4.3)" in text and "(3.41)" in text
    assert table(json.loads(json.dumps(record))) == text
    alone = record | {"runs": record["runs"][:4]}
    assert "±" not in table(alone)


def test_records_of_other_parts_do_not_merge(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`part` is mnist in one and imdb in another"):
        Mnist.merged([record, record | {"part": "imdb"}])


def test_the_stored_results_are_of_this_code() -> None:
    """Settings and paper's numbers of the file are those of the code, and the table can be made of it."""
    stored = json.loads((RESULTS / "k_tied_mnist.json").read_text())
    assert stored["config"] == json.loads(json.dumps(dataclasses.asdict(Mnist())))
    assert stored["paper"] == json.loads(json.dumps(PAPER["mnist"]))
    assert "| 2-tied | 0.574 ± 0.013 (0.52) |" in table(stored)
    assert Mnist.merged([stored, stored | {"part": "mnist"}])["runs"] == stored["runs"]


def test_the_command_line_runs_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "mine.json"
    arguments = ["--quick", "--epochs", "2", "--seeds", "5-5", "--samples", "3", "--out", str(out), "--ranks"]
    main([*arguments, "2"])
    assert "mnist 2-tied seed 5: nelbo " in capsys.readouterr().out
    first = json.loads(out.read_text())
    assert first["config"]["epochs"] == 2 and first["config"]["samples"] == 3
    main([*arguments, "0", "2"])
    assert "2-tied seed" not in capsys.readouterr().out
    second = json.loads(out.read_text())
    assert [run["posterior"] for run in second["runs"]] == ["2-tied", "mean-field"]
    assert second["runs"][0] == first["runs"][0] and second["config"]["ranks"] == [2, 0]


def test_foreign_settings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--part", "imdb", "--quick", "--precision", "bfloat16", "--ramp", "3"])
    assert "--part imdb has no setting precision, ramp" in capsys.readouterr().err


def test_rows_of_the_paper() -> None:
    assert rows("mnist", "figure 6")["3-tied"] == (0.497, 0.120, 96.9)
    assert rows("imdb", "table")["rank 1"] == (0.687, 0.491, 80.0)
    assert rows("cifar10", "table") == {}
    assert set(PAPER) == set(PARTS)
