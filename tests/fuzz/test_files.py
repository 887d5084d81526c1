"""Spoilt files load or are refused with a message; and what watches over that notices every fault."""

import json
import runpy
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fuzz.conftest import FOLDER


@pytest.fixture
def worker() -> Iterator[Any]:
    found = import_module("fuzz_files").Worker(seed=0)
    yield found
    found.stop()


def test_planted_faults_are_noticed_and_files_repeat(worker: Any) -> None:
    """After a death the process is another one, and gets the same files."""
    expected = {
        "planted-crash": ("crash", "KeyError"),
        "planted-silence": ("crash", "ValueError"),
        "planted-memory": ("crash", "MemoryError"),
        "planted-code": ("code", "pickle.find_class"),
        "planted-write": ("code", "open '/dev/null'"),
        "planted-death": ("crash", "the process died"),
    }
    before = [worker.read("checkpoint", number) for number in range(30)]
    assert {found["outcome"] for found in before} == {"loaded", "refused"}
    for kind, (outcome, message) in expected.items():
        found = worker.read(kind, 0, seconds=1.0)
        assert (found["outcome"], message in found["message"]) == (outcome, True), (kind, found)
    after = [worker.read("checkpoint", number) for number in range(30)]
    assert [found["outcome"] for found in after] == [found["outcome"] for found in before]
    assert worker.read("planted-hang", 0, seconds=1.0) == {"outcome": "hang", "message": "no answer within 1.0 s"}
    assert worker.process is None  # the next file gets another one


def check(found: dict[str, Any], count: int) -> None:
    assert not found["failures"] and set(found["kinds"]) == set(import_module("fuzz_files").KINDS)
    assert found["files"] == count == sum(found["total"].values())
    assert found["total"]["loaded"] > count / 20 and found["total"]["refused"] > count / 2


def test_spoilt_files_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the script, as the command line runs it."""
    script, out = str(FOLDER / "fuzz_files.py"), tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", [script, "--count", "400", "--seed", "7", "--out", str(out)])
    runpy.run_path(script, run_name="__main__")
    record = json.loads(out.read_text())
    assert record["command"] == "python benchmarks/fuzz_files.py --count 400 --seed 7" and record["device"] == "cpu"
    check(record, 400)


@pytest.mark.slow
def test_many_spoilt_files_do_no_harm() -> None:
    fuzz_files = import_module("fuzz_files")
    check(fuzz_files.fuzz(list(fuzz_files.KINDS), 0, 10_000, seed=7), 10_000)
