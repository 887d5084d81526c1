"""Cells far from all others in rows that are held out, or judged later: nothing is lost, and the cell is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeslim.cli import main, overflow
from bayeslim.cli.overflow import refuse_far_rows, refuse_overflow
from bayeslim.data.columns import CategoryColumn, NumberColumn, TableInputs
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.problems import split_rows
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs
from bayeslim.runs import Run
from cli.conftest import QUICK, flowers, houses

Output = pytest.CaptureFixture[str]
ROWS = 60
PARTS = ("train", "validation", "test")


def spoilt(table: Path, part: str, column: int) -> Path:
    """The table with 1e30 in a cell of a part of its rows."""
    lines = table.read_text().splitlines()
    row = int(split_rows(ROWS, seed=0)[PARTS.index(part)][-1])
    cells = lines[row + 1].split(",")
    cells[column] = "1e30"
    lines[row + 1] = ",".join(cells)
    table.write_text("\n".join(lines) + "\n")
    return table


def arguments(table: Path, out: Path) -> list[str]:
    target = "price" if "price" in table.read_text() else "species"
    return ["train", "--data", str(table), "--target", target, "--out", str(out), *QUICK]


def strict(file: Path) -> dict[str, Any]:
    """The file by a reader that takes JSON alone: no NaN, no Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{file} holds {name}")

    return json.loads(file.read_bytes(), parse_constant=refuse)


@pytest.mark.parametrize("part", ["validation", "test"])
@pytest.mark.parametrize("method", ["ard", "none"])
def test_held_out_rows_that_overflow_are_refused_before_training(
    tmp_path: Path, capsys: Output, part: str, method: str
) -> None:
    table = spoilt(houses(tmp_path / "t.csv", ROWS), part, 0)
    assert main([*arguments(table, tmp_path / "a"), "--method", method]) == 1
    said = capsys.readouterr()
    assert f"train: a {part} row: the network overflows, its answer is not a finite number" in said.err
    assert "in training about 1 (column 'size' holds 1e+30); correct the row, or leave it out" in said.err
    assert not said.out and not (tmp_path / "a").exists()


def test_the_column_is_named_among_others(tmp_path: Path, capsys: Output) -> None:
    table = spoilt(flowers(tmp_path / "t.csv", ROWS), "test", 1)
    assert main(arguments(table, tmp_path / "a")) == 1
    assert "(column 'width' holds 1e+30)" in capsys.readouterr().err


def test_the_cell_is_named_in_its_own_unit() -> None:
    columns = (CategoryColumn("soil", ("clay", "sand"), None), NumberColumn("age", 100.0, 2.0, None))
    x = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, -7.0]])
    with pytest.raises(ValueError, match=r"data row 12: .* reach 7, in training about 1 \(column 'age' holds 86\);"):
        refuse_overflow({"std": np.array([1.0, np.nan])}, x, TableInputs(columns), 10)
    with pytest.raises(ValueError, match="reach 1, in training about 1; correct the row"):  # of a text: no number
        refuse_overflow({"std": np.array([np.inf, 1.0])}, x, TableInputs(columns), 0)


@pytest.fixture
def kept(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on a table with such a test row, which nothing noticed before its scores."""
    table = spoilt(houses(tmp_path / "t.csv", ROWS), "test", 0)
    with monkeypatch.context() as patched:
        patched.setattr(overflow, "refuse_held_out", lambda *_: None)
        assert main(arguments(table, tmp_path / "a")) == 1
    assert f"The trained network is kept in {tmp_path / 'a'}, only its scores are missing" in capsys.readouterr().err
    return tmp_path / "a"


def test_the_trained_network_outlives_its_scores(kept: Path, tmp_path: Path, capsys: Output) -> None:
    before = Run(kept).model().state_dict()
    assert not (kept / "metrics.json").exists()
    (tmp_path / "new.csv").write_text("size\n50\n")
    assert main(["predict", str(kept), "--input", str(tmp_path / "new.csv"), "--out", str(tmp_path / "o.csv")]) == 0
    (kept / "model.safetensors").unlink()  # as runs were left that scored before they saved
    assert main(["train", "--resume", "--samples", "5", "--out", str(kept)]) == 1
    said = capsys.readouterr().err
    assert "a test row: the network overflows" in said and "is kept in" in said
    torch.testing.assert_close(Run(kept).model().state_dict(), before, rtol=0, atol=0)


def test_every_command_names_the_row(kept: Path, capsys: Output) -> None:
    for command in (["evaluate", str(kept)], ["prune", str(kept), "--samples", "2"], ["report", str(kept)]):
        assert main(command) == 1
        assert f"{command[0]}: a test row: the network overflows" in capsys.readouterr().err
    assert not Run(kept).has_pruned() and not (kept / "report.html").exists()


def test_a_resumed_run_names_the_validation_row(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = spoilt(houses(tmp_path / "t.csv", ROWS), "validation", 0)
    with monkeypatch.context() as patched:
        patched.setattr(overflow, "refuse_held_out", lambda *_: None)
        assert main(arguments(table, tmp_path / "a")) == 1
    assert main(["train", "--resume", "--out", str(tmp_path / "a")]) == 1
    assert "train: a validation row: the network overflows" in capsys.readouterr().err


def test_rows_of_a_labelled_file_have_numbers(tmp_path: Path, capsys: Output, regression_run: Path) -> None:
    (tmp_path / "new.csv").write_text("size,price\n50,150000\n100,300000\n1e30,2\n")
    assert main(["evaluate", str(regression_run), "--data", str(tmp_path / "new.csv"), "--samples", "3"]) == 1
    assert "evaluate: data row 3: the network overflows" in capsys.readouterr().err
    (tmp_path / "new.csv").write_text("size,price\n50,abc\n")
    assert main(["evaluate", str(regression_run), "--data", str(tmp_path / "new.csv")]) == 1
    assert "'abc' is not a number" in capsys.readouterr().err


def test_only_far_rows_are_tried(regression_run: Path) -> None:
    class Refusing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError("the network was asked")

    run = Run(regression_run)
    refuse_far_rows(Refusing(), torch.full((3, 1), 1e6), run.preprocessing, None)
    words = Preprocessing(TextInputs(("to", "be"), 2), Target("mood", ("sad", "glad")))
    refuse_far_rows(Refusing(), torch.full((3, 2), 10**7), words, None)
    with pytest.raises(AssertionError, match="was asked"):
        refuse_far_rows(Refusing(), torch.full((3, 1), 2e6), run.preprocessing, None)
    refuse_far_rows(run.model(), torch.full((3, 1), 2e6), run.preprocessing, None)  # far, but not too far


def test_infinite_scores_are_null_in_json(tmp_path: Path, regression_run: Path) -> None:
    (tmp_path / "new.csv").write_text("size,price\n50,150000\n100,1e30\n")
    scores = tmp_path / "scores.json"
    files = ["--data", str(tmp_path / "new.csv"), "--json-out", str(scores), "--samples", "3"]
    assert main(["evaluate", str(regression_run), *files]) == 0
    found = strict(scores)
    assert found["nll"] is None and found["rmse"] == pytest.approx(1e30 / 2**0.5, rel=1e-5)
    table = spoilt(houses(tmp_path / "t.csv", ROWS), "test", 1)
    assert main(arguments(table, tmp_path / "a")) == 0
    metrics = strict(tmp_path / "a" / "metrics.json")["trained"]
    assert metrics["test"]["nll"] is None and metrics["validation"]["nll"] > 0
    assert main(["prune", str(tmp_path / "a"), "--samples", "2"]) == 0
    assert strict(tmp_path / "a" / "pruning.json")["test"]["after"]["nll"] is None
    assert main(["report", str(tmp_path / "a")]) == 0
    page = (tmp_path / "a" / "report.html").read_text()
    assert '="nan"' not in page and 'inf"' not in page


def test_no_threshold_is_chosen_by_infinite_scores(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "a"
    assert main(arguments(spoilt(houses(tmp_path / "t.csv", ROWS), "validation", 1), out)) == 0
    assert strict(out / "metrics.json")["trained"]["validation"]["nll"] is None
    assert main(["prune", str(out), "--samples", "2"]) == 1
    assert "no threshold is better than another" in capsys.readouterr().err
    assert not Run(out).has_pruned() and not (out / "pruning.json").exists()
    assert main(["report", str(out)]) == 0
    assert "can be removed could not be measured" in (out / "report.html").read_text()
    assert main(["prune", str(out), "--threshold", "3", "--samples", "2"]) == 0
    assert strict(out / "pruning.json")["threshold"] == 3
