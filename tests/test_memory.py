"""Memory that tensors freed stays with the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from bayeslim.memory import keep_freed_memory
{first}
def step():
    tensors = [torch.ones(2**20) for _ in range(4)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory by rules of their own")
def test_steps_take_their_memory_from_the_process() -> None:
    """Sixteen MiB per step, which the system hands out page by page otherwise."""

    def faults(first: str) -> int:
        code = FAULTS.format(first=first)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    assert faults("keep_freed_memory()") < 1000 < faults("")
