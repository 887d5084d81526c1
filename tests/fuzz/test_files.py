"""Spoilt files load or are refused with a message; and what watches over that notices every fault."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest


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


def check(count: int) -> None:
    fuzz_files = import_module("fuzz_files")
    found = fuzz_files.fuzz(list(fuzz_files.KINDS), 0, count, seed=7)
    assert not found["failures"]
    assert found["total"]["loaded"] > count / 20 and found["total"]["refused"] > count / 2


def test_spoilt_files_do_no_harm() -> None:
    check(400)


@pytest.mark.slow
def test_many_spoilt_files_do_no_harm() -> None:
    check(10_000)
