"""How many examples per second 1, 2 and 4 processes train together, at the same global batch.

    python benchmarks/ranks.py --out results/ranks.json

Each process has one thread and, under torchrun, its part of every batch of LeNet-300-100 (weights drawn, normal prior).
The gradients of all parameters travel once per step, whatever the batch is: large batches scale, small ones do not. The
numbers of processes take turns; the figure is that of the fastest epoch, since others may use the machine;
`speedup` is its ratio to one process, which `cores` bounds.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from harness import LENET, run

import bayeslim as bl
from bayeslim.training.ranks import join

PROCESSES = [1, 2, 4]
BATCHES = [128, 1024, 4096]
ROWS = 8192


def examples_per_second(batch: int, rows: int, epochs: int, device: str) -> float:
    """Of this process and those beside it, together."""
    torch.manual_seed(0)
    data = torch.randn(rows, LENET[0]), torch.randint(0, LENET[-1], (rows,))
    times = [time.perf_counter()]
    bl.fit(
        bl.mlp(LENET, method="graves"),
        data,
        likelihood=bl.Categorical(),
        epochs=epochs,
        batch_size=batch,
        after_epoch=lambda *_: times.append(time.perf_counter()),
        device=device,
        progress=False,
        seed=0,
    )
    return rows / min(after - before for before, after in pairwise(times[1:]))


def measured(processes: int, chosen: argparse.Namespace) -> dict[str, float]:
    """Launch this file under torchrun; examples per second by batch."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speeds.json"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        own = [__file__, "--worker", str(file), "--device", chosen.device, *(["--quick"] if chosen.quick else [])]
        subprocess.run([*launcher, *own], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return json.loads(file.read_text())


def work(chosen: argparse.Namespace) -> None:
    """What one of the processes does."""
    rows, epochs = (256, 2) if chosen.quick else (ROWS, 5)
    batches = BATCHES[:1] if chosen.quick else BATCHES
    speeds = {str(batch): examples_per_second(batch, rows, epochs, chosen.device) for batch in batches}
    if join().first:
        chosen.worker.write_text(json.dumps(speeds))


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    counts, rounds = (PROCESSES[:2], 1) if chosen.quick else (PROCESSES, 4)
    speeds: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for count in counts:
            best = speeds.setdefault(str(count), {})
            for batch, speed in measured(count, chosen).items():
                best[batch] = max(speed, best.get(batch, 0.0))
    speedup = {
        count: {batch: speed / speeds["1"][batch] for batch, speed in own.items()} for count, own in speeds.items()
    }
    return {
        "what": "examples per second by number of processes and global batch",
        "examples_per_second": speeds,
        "speedup": speedup,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--worker", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true")
    known, _ = parser.parse_known_args()
    if known.worker is not None:
        work(known)
    else:
        run(__doc__, measure)
