"""How the cost grows with batch, width, depth and the number of samples: sweeps, and the exponent of each.

    python benchmarks/scaling.py --out results/scaling.json

Training steps of perceptrons (batch, width, depth) and predictions (samples T, 32 images; the deterministic network
does T passes, moments propagate once whatever T is). All methods take turns at every point. The exponent is the slope
`b` of the least-squares line `ln seconds = a + b ln size`, over the larger half of the sweep, where fixed costs fade.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from harness import LENET, pace, run
from predict import passes, predicting

from bayeslim.runtime.timing import interleaved
from bayeslim.step_costs import networks, train_step

METHODS = ["deterministic", "graves", "graves, local_reparam", "vdp"]
SWEEPS: dict[str, list[int]] = {
    "batch": [32, 64, 128, 256, 512, 1024, 2048],
    "width": [64, 128, 256, 512, 1024, 2048],
    "depth": [1, 2, 4, 8, 16],
    "samples": [10, 20, 40, 80, 160, 320],
}


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the larger half of the points, both axes logarithmic."""
    start = len(sizes) // 2
    x, y = ([math.log(value) for value in values[start:]] for values in (sizes, seconds))
    middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / sum((a - middle_x) ** 2 for a in x)


def training(sizes: list[int], batch: int, device: str) -> dict[str, Callable[[], object]]:
    x = torch.randn(batch, sizes[0], device=device)
    y = torch.randint(0, sizes[-1], (batch,), device=device)
    built = networks(sizes)
    return {name: train_step(built[name]().to(device), x, y) for name in METHODS}


def prediction(samples: int, device: str) -> dict[str, Callable[[], object]]:
    x = torch.randn(32, LENET[0], device=device)
    models = {name: build().to(device).eval() for name, build in networks(LENET).items() if name in METHODS}
    calls = {name: predicting(model, x, samples) for name, model in models.items()}
    calls["deterministic"] = passes(models["deterministic"], x, samples)
    calls["vdp"] = predicting(models["vdp"], x, samples, "moments")
    return calls


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    make: Mapping[str, Callable[[int], dict[str, Callable[[], object]]]] = {
        "batch": lambda size: training(LENET, size, chosen.device),
        "width": lambda size: training([size, size, size, 10], 256, chosen.device),
        "depth": lambda size: training([256] * (size + 1) + [10], 256, chosen.device),
        "samples": lambda size: prediction(size, chosen.device),
    }
    found: dict[str, Any] = {}
    for name, sizes in SWEEPS.items():
        sizes = sizes[:3] if chosen.quick else sizes
        points = [interleaved(make[name](size), **pace(chosen, 9)) for size in sizes]
        seconds = {method: [point[method].seconds for point in points] for method in METHODS}
        exponents = {method: exponent(sizes, own) for method, own in seconds.items()}
        found[name] = {"sizes": sizes, "seconds": seconds, "exponent": exponents}
    return {"what": "seconds over size", "sweeps": found}


if __name__ == "__main__":
    run(__doc__, measure)
