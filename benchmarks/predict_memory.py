"""Peak memory of `bayeslim predict` over the number of rows.

    python benchmarks/predict_memory.py --out results/predict_memory.json

A network on four columns predicts made-up files of 10^4 to 10^7 rows by its mean weights, each in a process of its own.
Peak memory is the most that was resident in that process (VmHWM of Linux). An input of .csv is answered in .csv,
.npy in .npz and .parquet in .parquet. `growth` is the peak of the largest file over that of the smallest.
"""

import argparse
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from harness import run
from numpy.typing import NDArray

from bayeslim.cli import main

COLUMNS = [f"x{index}" for index in range(4)]
BLOCK = 10_000
"""Rows that the made-up files repeat."""
PREDICT = """
import sys
from pathlib import Path
from bayeslim.cli import main
code = main(sys.argv[1:])
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
sys.exit(code)
"""


def write_csv(file: Path, block: NDArray[np.float32], times: int) -> None:
    text = io.StringIO()
    np.savetxt(text, block, "%.6g", ",")
    with file.open("w") as opened:
        opened.write(",".join(COLUMNS) + "\n")
        opened.writelines(text.getvalue() for _ in range(times))


def write_npy(file: Path, block: NDArray[np.float32], times: int) -> None:
    with file.open("wb") as opened:
        facts = np.lib.format.header_data_from_array_1_0(block) | {"shape": (len(block) * times, len(COLUMNS))}
        np.lib.format.write_array_header_1_0(opened, facts)
        opened.writelines(block.tobytes() for _ in range(times))


def write_parquet(file: Path, block: NDArray[np.float32], times: int) -> None:
    table = pyarrow.table(dict(zip(COLUMNS, block.T, strict=True)))
    with pyarrow.parquet.ParquetWriter(file, table.schema) as writer:
        for _ in range(times):
            writer.write_table(table)


FORMATS: dict[str, tuple[Callable[[Path, NDArray[np.float32], int], None], str]] = {
    "csv": (write_csv, "csv"),
    "npy": (write_npy, "npz"),
    "parquet": (write_parquet, "parquet"),
}
"""Format of the input -> what writes it, and the format of the answers."""


def trained(folder: Path) -> Path:
    """A run on a small regression."""
    x = np.random.default_rng(0).normal(size=(300, len(COLUMNS)))
    table = np.column_stack([x, x.sum(1)])
    np.savetxt(folder / "train.csv", table, "%.6g", ",", header=",".join([*COLUMNS, "y"]), comments="")
    out = folder / "run"
    arguments = ["--data", str(folder / "train.csv"), "--target", "y", "--quick", "--device", "cpu", "--out", str(out)]
    if main(["train", *arguments]):
        raise RuntimeError("training failed: see above")
    return out


def predicting(network: Path, source: Path, out: Path) -> dict[str, float]:
    """Predict in a new process: its peak memory in MiB, and how long it took with its start."""
    arguments = ["predict", str(network), "--input", str(source), "--out", str(out), "--method", "mean"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PREDICT, *arguments, "--device", "cpu"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return {"peak_mib": int(done.stdout.split()[-1]) / 1024, "seconds": time.perf_counter() - start}


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    sizes = [BLOCK, 3 * BLOCK] if chosen.quick else [10**4, 10**5, 10**6, 10**7]
    block = np.random.default_rng(1).normal(size=(BLOCK, len(COLUMNS))).astype(np.float32)
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in chosen.formats}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network = trained(folder)
        for kind in chosen.formats:
            write, answered = FORMATS[kind]
            source, out = folder / f"input.{kind}", folder / f"out.{answered}"
            for rows in sizes:
                write(source, block, rows // BLOCK)
                found[kind][str(rows)] = predicting(network, source, out)
                print(kind, rows, found[kind][str(rows)], file=sys.stderr)
                out.unlink()
            source.unlink()
    growth = {
        kind: peaks[str(sizes[-1])]["peak_mib"] / peaks[str(sizes[0])]["peak_mib"] for kind, peaks in found.items()
    }
    return {"what": "peak memory of predict", "columns": len(COLUMNS), "peaks": found, "growth": growth}


if __name__ == "__main__":
    run(__doc__, measure, formats={"nargs": "+", "choices": list(FORMATS), "default": list(FORMATS)})
