"""Training steps, eager, compiled and as CUDA graphs, in turns with the eager plain network.

    python benchmarks/modes_in_turns.py --out results/modes_in_turns.json
    python benchmarks/modes_in_turns.py --device cuda --out results/modes_in_turns_cuda.json

LeNet-300-100 with batch 256 on a CPU; three layers of 4096 with batch 4096 in bfloat16 on CUDA. `train_step.py`
compares every mode with the plain network in the same mode; here one network, eager and without Bayesian layers, is
what all are compared with, in the same rounds, whatever the machine's clocks do meanwhile. A turn takes about 50 steps:
after so many `fit` waits for a CUDA device. In shorter turns their start, when the device waits for the host, weighs
more.
"""

import argparse
import functools
from typing import Any

import torch
from harness import LENET, run

from bayeslim.step_costs import as_record, costs_of, networks, train_step

TURN_SECONDS = 0.15
"""About 50 steps of 3 ms."""
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "graph": {"cuda_graph": True},
    "compiled": {"compile": True},
    "compiled graph": {"compile": True, "cuda_graph": True},
}
NETS: dict[str, tuple[list[int], int, torch.dtype | None]] = {
    "cpu": (LENET, 256, None),
    "cuda": ([4096] * 4, 4096, torch.bfloat16),
}
MEASURED = {
    "cpu": {
        "eager": ["deterministic", "graves", "graves, local_reparam", "vdp"],
        "compiled": ["deterministic", "graves", "graves, local_reparam", "vdp"],
    },
    "cuda": {
        "eager": ["deterministic", "graves", "k-tied"],
        "graph": ["graves", "k-tied"],
        "compiled": ["graves", "graves, local_reparam"],
        "compiled graph": ["deterministic", "graves", "graves, local_reparam", "k-tied", "vdp"],
    },
}
"""Networks by mode; the first is what all are compared with."""


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    device = torch.device(chosen.device)
    sizes, batch, autocast = ([8, 16, 4], 8, None) if chosen.quick else NETS[device.type]
    x = torch.randn(batch, sizes[0], device=device)
    y = torch.randint(0, sizes[-1], (batch,), device=device)

    def build(name: str, mode: str) -> Any:
        return train_step(networks(sizes)[name]().to(device), x, y, autocast=autocast, **MODES[mode])

    builders = {
        f"{name}, {mode}": functools.partial(build, name, mode)
        for mode, names in MEASURED[device.type].items()
        for name in names
        if not (chosen.quick and "compile" in MODES[mode])
    }
    rounds, turn = (2, 0.0) if chosen.quick else (25, TURN_SECONDS)
    return {
        "what": "training step, ratio to the eager deterministic network",
        "network": sizes,
        "batch": batch,
        "autocast": str(autocast or torch.float32).removeprefix("torch."),
        "rounds": rounds,
        "turn_seconds": turn,
        "steps": as_record(costs_of(builders, rounds=rounds, turn_seconds=turn, device=device)),
    }


if __name__ == "__main__":
    run(__doc__, measure)
