"""Two records of a benchmark are compared row by row."""

import copy
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parent.parent.parent / "results"


def compared(old: Any, new: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    for name, record in (("old", old), ("new", new)):
        (folder / f"{name}.json").write_text(json.dumps(record))
    monkeypatch.setattr(sys, "argv", ["compare.py", str(folder / "old.json"), str(folder / "new.json"), *options])
    compare: Any = import_module("compare")
    return compare.main()


def test_rows_that_are_slower_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = json.loads((RESULTS / "train_step.json").read_text())
    assert compared(old, old, tmp_path, monkeypatch) == 0
    new = copy.deepcopy(old)
    eager = new["steps"]["eager"]
    eager["graves"]["ratio"] *= 1.1
    eager["ard"]["ratio"] *= 1.04
    eager["vdp"]["seconds"] *= 1.2
    del eager["bbb"]
    capsys.readouterr()
    assert compared(old, new, tmp_path, monkeypatch) == 1
    slower, count, gone = capsys.readouterr().out.splitlines()
    assert slower.startswith("steps / eager / graves: 1.392 (1.3 to 1.47) -> 1.532") and slower.endswith("+10.0 %")
    assert count == "1 of 19 rows are more than 5 % slower" and gone == "gone: steps / eager / bbb"
    assert compared(old, new, tmp_path, monkeypatch, "--seconds") == 1
    assert capsys.readouterr().out.startswith("steps / eager / vdp: ")


def test_sweeps_are_compared_at_every_size_with_the_plain_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {"sweeps": {"batch": {"sizes": [1, 2], "seconds": {"deterministic": [1.0, 2.0], "graves": [2.0, 6.0]}}}}
    new = {"sweeps": {"batch": {"sizes": [1, 2], "seconds": {"deterministic": [2.0, 2.0], "graves": [4.0, 7.0]}}}}
    assert compared(old, new, tmp_path, monkeypatch) == 1
    assert capsys.readouterr().out.splitlines()[0] == "sweeps / batch / graves / 2: 3 -> 3.5, +16.7 %"


@pytest.mark.parametrize("name", ["train_step", "predict", "scaling", "dissertation_tables"])
def test_every_record_of_make_bench_has_rows(name: str) -> None:
    compare: Any = import_module("compare")
    record = json.loads((RESULTS / f"{name}.json").read_text())
    assert len(dict(compare.figures(record))) == len(dict(compare.figures(record, seconds=True))) >= 19


def test_records_of_two_benchmarks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, predictions = (json.loads((RESULTS / f"{name}.json").read_text()) for name in ("train_step", "predict"))
    with pytest.raises(SystemExit, match="no row in common"):
        compared(steps, predictions, tmp_path, monkeypatch)
