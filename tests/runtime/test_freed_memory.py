"""Freed memory stays with the process; without torch, whose import may teach glibc the same."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, statistics, numpy
from bayeslim.runtime.freed_memory import keep_freed_memory
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [numpy.ones(50_000, numpy.float32) for _ in range(80)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(int(statistics.median(faults() for _ in range(31))))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory by rules of their own")
def test_steps_take_their_memory_from_the_process() -> None:
    """Sixteen MB per step in many arrays, which the system hands out page by page otherwise."""

    def faults(first: str) -> int:
        code = FAULTS.format(first=first)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    assert faults("keep_freed_memory()") < 1000 < faults("")
