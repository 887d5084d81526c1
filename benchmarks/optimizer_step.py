"""Cost of a step of the samplers relative to torch's fused Adam, on this machine.

    python benchmarks/optimizer_step.py --out results/optimizer_step.json

The step alone, gradients fixed, on LeNet-300-100 and on a network of ten million weights. All optimisers run in
one process, interleaved; the ratio is the median over rounds of the round's ratio to fused Adam. State memory is
counted in bytes per parameter. `noise` is what drawing one standard normal per weight takes by itself.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from harness import LENET, as_dicts, pace, run
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim import SGHMC, SGLD, CVAdam
from bayeslim.runtime.timing import interleaved

NETWORKS = {"lenet-300-100": LENET, "ten million": [784, 2400, 2400, 1000]}
COUNT = 60_000


def parameters(sizes: list[int], device: str) -> list[nn.Parameter]:
    """The parameters of a fresh network, with gradients."""
    found = list(bl.models.mlp(sizes).to(device).parameters())
    for parameter in found:
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    return found


def optimizers(sizes: list[int], device: str) -> dict[str, Any]:
    make: dict[str, Callable[[list[nn.Parameter]], Any]] = {
        "adam": lambda p: torch.optim.Adam(p, 1e-3, fused=True),
        "cv_adam": lambda p: CVAdam(p, num_data=COUNT, lr=0.01),
        "cv_adam, tau frozen": lambda p: CVAdam(p, num_data=COUNT, lr=0.01, eta=0.0),
        "cv_adam, temperature 0": lambda p: CVAdam(p, num_data=COUNT, lr=0.01, temperature=0.0),
        "sghmc": lambda p: SGHMC(p, num_data=COUNT, lr=0.01),
        "sgld": lambda p: SGLD(p, num_data=COUNT, lr=0.01),
    }
    return {name: build(parameters(sizes, device)) for name, build in make.items()}


def state_bytes(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of state per parameter, counters aside."""
    tensors = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, Tensor) and t.ndim]
    count = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    return sum(t.numel() * t.element_size() for t in tensors) / count


def compare(sizes: list[int], chosen: argparse.Namespace) -> dict[str, Any]:
    built = optimizers(sizes, chosen.device)
    count = sum(p.numel() for p in parameters(sizes, "cpu"))
    steps = {name: optimizer.step for name, optimizer in built.items()}
    steps["noise"] = torch.empty(count, device=chosen.device).normal_
    return {
        "weights": count,
        "steps": as_dicts(interleaved(steps, **pace(chosen, 30))),
        "state_bytes_per_weight": {name: state_bytes(optimizer) for name, optimizer in built.items()},
    }


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    names = list(NETWORKS)[:1] if chosen.quick else list(NETWORKS)
    return {
        "what": "optimiser step, ratio to fused Adam",
        "networks": {name: compare(NETWORKS[name], chosen) for name in names},
    }


if __name__ == "__main__":
    run(__doc__, measure)
