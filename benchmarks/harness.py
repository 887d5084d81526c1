"""What the scripts here share: their arguments, and the record that they print and write.

A script defines `measure(chosen) -> dict` and ends in `run(__doc__, measure, ...)`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from bayeslim.machine import machine
from bayeslim.runtime.timing import Timing
from bayeslim_papers.record import write_record

LENET = [784, 300, 100, 10]


def run(doc: str | None, measure: Callable[[argparse.Namespace], Mapping[str, Any]], **options: dict[str, Any]) -> None:
    """Parse the arguments, measure, and write the record with what it ran on.

    Args:
        doc: the script's docstring, which is its help.
        measure: takes the arguments and returns what JSON can hold.
        options: further arguments, by name, as `add_argument` takes them.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes: does it run, not how fast")
    parser.add_argument("--out", type=Path, default=None, help="JSON file to write")
    for name, settings in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **settings)
    chosen = parser.parse_args()
    torch.manual_seed(0)
    record = {"command": command(sys.argv), **machine(chosen.device), **measure(chosen)}
    print(json.dumps(record, indent=1))
    write_record(chosen.out, record)


def pace(chosen: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """How `interleaved` measures: so many rounds, or one call of everything where it is quick."""
    if chosen.quick:
        return {"rounds": 1, "warmup": 0, "turn_seconds": 0.0, "device": chosen.device}
    return {"rounds": rounds, "warmup": 1, "device": chosen.device}


def command(typed: list[str]) -> str:
    """What was typed, without where the record goes."""
    rest = typed[1:]
    if "--out" in rest:
        place = rest.index("--out")
        rest = rest[:place] + rest[place + 2 :]
    return " ".join(["python", f"benchmarks/{Path(typed[0]).name}", *rest])


def as_dicts(timings: Mapping[str, Timing]) -> dict[str, dict[str, float]]:
    """Timings as JSON holds them."""
    return {name: asdict(timing) for name, timing in timings.items()}
