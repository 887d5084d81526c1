"""Time of a step of many networks trained side by side by `fit_many`, against one of them.

    python benchmarks/many_networks.py --device cuda --out results/many_networks_cuda.json

LeNet-300-100 with an ARD prior and local reparameterisation, batch 100. On CUDA every step is one graph.
"""

import argparse
from typing import Any

import torch
from harness import LENET, as_dicts, pace, run

import bayeslim as bl
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.timing import interleaved
from bayeslim.training.stack import Objective, StackStepper

BATCH = 100


def stepper_of(count: int, sizes: list[int], x: torch.Tensor, y: torch.Tensor) -> StackStepper:
    with seeded(0):
        models = [bl.mlp(sizes, method="ard").to(x.device) for _ in range(count)]
    members = [Objective(model, bl.Categorical(), len(x)) for model in models]
    return StackStepper(members, x, y, lr=[1e-3] * count)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    sizes, rows = ([8, 16, 4], 200) if chosen.quick else (LENET, 10_000)
    x = torch.randn(rows, sizes[0], device=chosen.device)
    y = torch.randint(sizes[-1], (rows,), device=chosen.device)
    factor = torch.ones((), device=chosen.device)
    calls: dict[str, Any] = {}
    for count in (1, 2) if chosen.quick else (1, 4, 14):
        stepper, beta = stepper_of(count, sizes, x, y), torch.ones(count, device=chosen.device)
        order = torch.randint(rows, (count, BATCH), device=chosen.device)
        calls[str(count)] = lambda own=stepper, order=order, beta=beta: own.step(order, beta, factor)
    for call in calls.values():  # the graphs are captured on the way
        for _ in range(6):
            call()
    times = interleaved(calls, **pace(chosen, rounds=20))
    return {
        "what": "step of networks trained side by side, ratio to one of them",
        "network": sizes,
        "batch": BATCH,
        "steps": as_dicts(times),
    }


if __name__ == "__main__":
    run(__doc__, measure)
