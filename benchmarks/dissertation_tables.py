"""The dissertation's Tables 3.1 to 3.5, measured here beside its numbers.

    python benchmarks/dissertation_tables.py --out results/dissertation_tables.json

3.1: forward pass of one layer 300 -> 100, batch 32. 3.2: one epoch of ten such batches through 300-100-10, with Adam.
3.3 to 3.5: the same epoch by optimiser (learning rate 0.01) for Molchanov, Graves and Kingma. As in the dissertation
every method draws weights. Its numbers are of Julia, on another machine: what compares is the ratio to Dense. The
dissertation prints for Kingma (3.5) the digits of Molchanov (3.3), an error of copying: they are left out.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from harness import as_dicts, pace, run
from torch import nn

import bayeslim as bl
from bayeslim.runtime.timing import allocations, interleaved
from bayeslim.step_costs import train_step

METHODS = {"Dense": None, "Molchanov": "molchanov", "Graves": "graves", "Kingma": "kingma"}
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "Adam": torch.optim.Adam,
    "RMSProp": torch.optim.RMSprop,
    "SGD": torch.optim.SGD,
    "AdaGrad": torch.optim.Adagrad,
}
PAPER: dict[str, dict[str, float]] = {
    "3.1, microseconds": {"Dense": 37.8, "Molchanov": 313.3, "Graves": 322.7, "Kingma": 364.4},
    "3.1, KiB": {"Dense": 25.16, "Molchanov": 259.81, "Graves": 259.81, "Kingma": 259.81},
    "3.2, milliseconds": {"Dense": 1.417, "Molchanov": 24.614, "Graves": 16.183, "Kingma": 20.519},
    "3.2, MiB": {"Dense": 2.64, "Molchanov": 62.67, "Graves": 46.16, "Kingma": 47.25},
    "3.3 Molchanov, milliseconds": {"Adam": 22.29, "RMSProp": 21.17, "SGD": 19.53, "AdaGrad": 21.01},
    "3.4 Graves, milliseconds": {"Adam": 15.61, "RMSProp": 14.22, "SGD": 14.51, "AdaGrad": 14.25},
}


def network(sizes: list[int], method: str | None, device: str) -> nn.Module:
    if method is None:
        return bl.models.mlp(sizes).to(device)
    return bl.mlp(sizes, method=method, estimator=bl.weight_sample).to(device)


def epoch(method: str | None, device: str, kind: type[torch.optim.Optimizer] = torch.optim.Adam) -> Callable[[], None]:
    """Ten steps on batches of 32."""
    model = network([300, 100, 10], method, device)
    x, y = torch.randn(32, 300, device=device), torch.randint(0, 10, (32,), device=device)
    options: dict[str, Any] = {"lr": 0.01} | ({"fused": True} if kind in (torch.optim.Adam, torch.optim.SGD) else {})
    step = train_step(model, x, y, optimizer=kind(bl.param_groups(model), **options))

    def ten() -> None:
        for _ in range(10):
            step()

    return ten


def allocated(call: Callable[[], object]) -> int:
    """Bytes that torch allocates in one call, released ones too, as Julia counts them."""
    return sum(size for size in allocations(call)[1] if size > 0)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    device = chosen.device
    x = torch.randn(32, 300, device=device)
    layers = {name: network([300, 100], method, device) for name, method in METHODS.items()}
    forward: dict[str, Callable[[], object]] = {
        name: torch.no_grad()(lambda model=model: model(x)) for name, model in layers.items()
    }
    epochs = {name: epoch(method, device) for name, method in METHODS.items()}
    found: dict[str, Any] = {
        name: as_dicts(interleaved(calls, **pace(chosen, 30)))
        for name, calls in (("forward", forward), ("epoch", epochs))
    }
    for method in ("Molchanov", "Graves", "Kingma"):
        calls = {name: epoch(METHODS[method], device, kind) for name, kind in OPTIMIZERS.items()}
        found[method] = as_dicts(interleaved(calls, **pace(chosen, 30)))
    if device == "cpu":
        for name, calls in (("forward", forward), ("epoch", epochs)):
            for method, call in calls.items():
                found[name][method]["allocated"] = allocated(call)
    return {"what": "Tables 3.1 to 3.5 of the dissertation", "ours": found, "paper": PAPER}


if __name__ == "__main__":
    run(__doc__, measure)
