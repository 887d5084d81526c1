"""Folders that `bayeslim train` of the first edition made: what it began ends, and they give the answers they gave."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bayeslim as bl
from bayeslim.cli import main
from bayeslim.runs import Run
from frozen.answers import FILES, recorded

RECORDED: dict[str, Any] = recorded()["runs"]
SAMPLES = 1000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of all runs and their data, where they find each other."""
    runs = Path(shutil.copytree(FILES / "runs", tmp_path / "runs"))
    for config in runs.glob("*/config.toml"):
        config.write_text(config.read_text().replace('data = "', f'data = "{runs.as_posix()}/'))
    monkeypatch.chdir(runs)
    return runs


def answers(name: str, method: str) -> dict[str, Any]:
    """The columns of what `bayeslim predict` writes."""
    new = "new.npy" if name == "images" else "new.csv"
    out = ["--out", f"{name} {method}.csv", "--method", method, "--samples", str(SAMPLES)]
    assert main(["predict", name, "--input", new, *out]) == 0
    with Path(out[1]).open(newline="") as file:
        return columns(list(csv.DictReader(file)))


def columns(rows: list[dict[str, str]]) -> dict[str, Any]:
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_a_run_that_was_stopped_ends(folder: Path) -> None:
    before = Run(folder / "species").history().records
    assert main(["train", "--resume", "--out", "species"]) == 0
    run = Run(folder / "species")
    assert run.finished and len(before) == 3 and run.history().records[:3] == before
    assert [record["epoch"] for record in run.history()] == list(range(5))
    assert bl.evaluate(run.model(), run.splits().test, samples=10)["nll"] < 1.5
    assert run.metrics()["trained"]["test"].keys() == {"nll", "accuracy", "ece", "brier"}


@pytest.mark.parametrize("name", RECORDED)
def test_the_mean_network_answers_the_same(name: str, folder: Path) -> None:
    run, found, expected = Run(folder / name), answers(name, "mean"), columns(RECORDED[name]["mean"])
    assert bl.kl(run.model("trained")).item() == pytest.approx(RECORDED[name]["kl"], rel=1e-5)
    assert run.history()["epoch"] == list(range(5)) and run.has_pruned() == (name == "prices")
    assert list(found) == list(expected)
    for column, values in found.items():
        np.testing.assert_allclose(values, expected[column], rtol=1e-5, atol=1e-6, err_msg=column)


def test_answers_in_numbers_agree_within_their_errors(folder: Path) -> None:
    """Those by moments have none."""
    found, expected = answers("prices", "moments"), columns(RECORDED["prices"]["moments"])
    for column, values in found.items():
        np.testing.assert_allclose(values, expected[column], rtol=1e-5, err_msg=column)
    found, expected = answers("prices", "sample"), columns(RECORDED["prices"]["sample"])
    doubt = expected["epistemic_std"]
    assert (np.abs(found["prediction"] - expected["prediction"]) < 5 * doubt * np.sqrt(1.05 / SAMPLES)).all()
    np.testing.assert_allclose(found["epistemic_std"], doubt, rtol=0.2)  # 5 errors, for kurtoses up to 7


@pytest.mark.parametrize("method", ["moments", "sample"])
def test_answers_in_classes_agree_within_their_errors(method: str, folder: Path) -> None:
    """The variance of a probability over the posterior is about `2 p (1 - p)` times the mutual information."""
    found, expected = answers("images", method), columns(RECORDED["images"][method])
    p = expected["p_1"]
    error = np.sqrt(2 * p * (1 - p) * expected["mutual_information"] * 1.05 / SAMPLES)
    assert (np.abs(found["p_1"] - p) < 5 * error).all()
    np.testing.assert_allclose(found["mutual_information"], expected["mutual_information"], rtol=0.4)
