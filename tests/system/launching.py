"""Start a script as several ranks, as torchrun does, and collect what each of them saw."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

__all__ = ["ENVIRONMENT", "TORCHRUN", "launched"]

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def launched(script: str | None, count: int, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """What each of `count` ranks of a script wrote to `rank-*.pt` in the folder; none may warn."""
    assert script is not None
    command = [*TORCHRUN, str(count), script, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return [torch.load(folder / f"rank-{index}.pt", weights_only=False) for index in range(count)]
