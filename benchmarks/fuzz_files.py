"""Spoilt files of every kind that bayeslim reads: none may crash it, hang it, exhaust the memory or run code.

    python benchmarks/fuzz_files.py --count 10000 --seed 0 --out results/fuzz.json

Each file is read in a process of its own kind (`fuzz_worker.py`) with 2 GiB of memory and five seconds. It may load,
or be refused by a ValueError or OSError that says why; anything else is counted as a crash, a hang or code that ran.
`--kinds checkpoint csv` takes some kinds only; a failure names its kind and number, which `--first` repeats.
"""

import argparse
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from harness import run

KINDS = (
    *("model", "slim", "checkpoint", "config", "run", "preprocessing", "csv", "npy", "npz", "splits", "idx", "cifar"),
    *("reviews", "png", "parquet"),
)
OUTCOMES = ("loaded", "refused", "crash", "hang", "code")
SECONDS = 5.0


class Worker:
    """A process that reads files, started anew after it died or was stopped.

    Args:
        seed: of the mutations.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.process: subprocess.Popen[str] | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def read(self, kind: str, number: int, seconds: float = SECONDS) -> dict[str, Any]:
        """Let it read one file; `outcome` is one of `OUTCOMES`."""
        process = self.started()
        assert process.stdin is not None
        process.stdin.write(f"{kind} {number}\n")
        process.stdin.flush()
        line = self.line(seconds)
        if line:
            return json.loads(line)
        dead = process.poll()
        self.stop()
        if line is None and dead is None:
            return {"outcome": "hang", "message": f"no answer within {seconds} s"}
        return {"outcome": "crash", "message": "the process died"}

    def started(self) -> subprocess.Popen[str]:
        """The process, ready to read."""
        if self.process is None:
            self.folder = tempfile.TemporaryDirectory(prefix="bayeslim-fuzz-", ignore_cleanup_errors=True)
            script = Path(__file__).with_name("fuzz_worker.py")
            self.process = subprocess.Popen(
                [sys.executable, str(script), self.folder.name, str(self.seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
            if self.line(120) != "ready\n":
                self.stop()
                raise RuntimeError("the process that reads files did not start: run fuzz_worker.py by hand to see why")
        return self.process

    def line(self, seconds: float) -> str | None:
        """The next line of its output: empty if it died, None if it takes longer than `seconds`."""
        assert self.process is not None and self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            return self.process.stdout.readline() if selector.select(seconds) else None

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None


def fuzz(kinds: list[str], first: int, count: int, seed: int) -> dict[str, Any]:
    """Read `count` spoilt files, the kinds in turn, and count what happened."""
    counts = {kind: Counter({name: 0 for name in OUTCOMES}) for kind in kinds}
    failures: list[dict[str, Any]] = []
    worker, start = Worker(seed), time.perf_counter()
    try:
        for place in range(count):
            kind, number = kinds[place % len(kinds)], first + place // len(kinds)
            found = worker.read(kind, number)
            counts[kind][found["outcome"]] += 1
            if found["outcome"] not in ("loaded", "refused"):
                failures.append({"kind": kind, "number": number, **found})
    finally:
        worker.stop()
    total = sum(counts.values(), Counter())
    return {
        "files": count,
        "seed": seed,
        "total": {name: total[name] for name in OUTCOMES},
        "kinds": {kind: dict(counted) for kind, counted in counts.items()},
        "failures": failures[:100],
        "minutes": round((time.perf_counter() - start) / 60, 1),
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    return fuzz(chosen.kinds, chosen.first, 64 if chosen.quick else chosen.count, chosen.seed)


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        count={"type": int, "default": 10_000, "help": "files to read"},
        seed={"type": int, "default": 0, "help": "of the mutations"},
        first={"type": int, "default": 0, "help": "number of the first file of each kind"},
        kinds={"nargs": "+", "default": list(KINDS), "choices": KINDS, "help": "kinds of file"},
    )
