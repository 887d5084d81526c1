"""Training steps of three layers of 4096, eager, compiled and as CUDA graphs, in turns with the eager plain network.

    python benchmarks/modes_in_turns.py --device cuda --out results/modes_in_turns_cuda.json

`train_step.py` compares every mode with the plain network in the same mode; here one network, eager and without
Bayesian layers, is what all are compared with, in the same rounds, whatever the machine's clocks do meanwhile. A turn
takes about 50 steps: after so many `fit` waits for the device. In shorter turns their start, when the device waits for
the host, weighs more.
"""

import argparse
import functools
from typing import Any

import torch
from harness import run

from bayeslim.step_costs import as_record, costs_of, networks, train_step

SIZES, BATCH = [4096] * 4, 4096
TURN_SECONDS = 0.15
"""About 50 steps of 3 ms."""
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "graph": {"cuda_graph": True},
    "compiled": {"compile": True},
    "compiled graph": {"compile": True, "cuda_graph": True},
}
MEASURED = {
    "eager": ["deterministic", "graves", "k-tied"],
    "graph": ["graves", "k-tied"],
    "compiled": ["graves", "graves, local_reparam"],
    "compiled graph": ["deterministic", "graves", "graves, local_reparam", "k-tied", "vdp"],
}
"""Networks by mode; the first is what all are compared with."""


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    sizes, batch = ([8, 16, 4], 8) if chosen.quick else (SIZES, BATCH)
    device = torch.device(chosen.device)
    x = torch.randn(batch, sizes[0], device=device)
    y = torch.randint(0, sizes[-1], (batch,), device=device)

    def build(name: str, mode: str) -> Any:
        return train_step(networks(sizes)[name]().to(device), x, y, autocast=torch.bfloat16, **MODES[mode])

    builders = {
        f"{name}, {mode}": functools.partial(build, name, mode)
        for mode, names in MEASURED.items()
        for name in names
        if (device.type == "cuda" or "graph" not in mode) and not (chosen.quick and "compile" in MODES[mode])
    }
    rounds, turn = (2, 0.0) if chosen.quick else (25, TURN_SECONDS)
    return {
        "what": "training step, ratio to the eager deterministic network",
        "network": sizes,
        "batch": batch,
        "autocast": "bfloat16",
        "rounds": rounds,
        "turn_seconds": turn,
        "steps": as_record(costs_of(builders, rounds=rounds, turn_seconds=turn, device=device)),
    }


if __name__ == "__main__":
    run(__doc__, measure)
