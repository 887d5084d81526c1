"""Cost of the two products of a linear layer's mean and variance, by how they are asked for.

    python benchmarks/products.py --out results/products.json

Forwards `x W^T` or `W x^T`, which is the same numbers features first, and the gradients by the weights and by the
inputs; one product after the other, as `nn.Linear` has them, both as one batch, or by oneDNN. Batch 256, all ways in
turns; ratios are to two products `x W^T` one after the other. `OMP_NUM_THREADS` sets the threads.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from harness import LENET, as_dicts, pace, run
from torch import Tensor

from bayeslim.runtime.timing import interleaved

LAYERS = [(LENET[0], LENET[1]), (LENET[1], LENET[2]), (1024, 1024)]
BATCH = 256


def ways(x: Tensor, weights: Tensor, gradients: Tensor) -> dict[str, Callable[[], object]]:
    """Products of inputs (2, rows, in), weights (2, out, in) and gradients (2, rows, out)."""
    pairs = list(zip(x, weights, gradients, strict=True))
    found: dict[str, Callable[[], object]] = {
        "x W^T": lambda: [torch.mm(row, weight.T) for row, weight, _ in pairs],
        "x W^T, one batch": lambda: torch.bmm(x, weights.mT),
        "W x^T": lambda: [torch.mm(weight, row.T) for row, weight, _ in pairs],
        "W x^T, one batch": lambda: torch.bmm(weights, x.mT),
        "by weights": lambda: [torch.mm(gradient.T, row) for row, _, gradient in pairs],
        "by weights, one batch": lambda: torch.bmm(gradients.mT, x),
        "by inputs": lambda: [torch.mm(gradient, weight) for _, weight, gradient in pairs],
    }
    if x.device.type == "cpu" and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        by_onednn = torch.ops.mkldnn._linear_pointwise
        rest = None, "none", [], ""
        found |= {
            "x W^T, oneDNN": lambda: [by_onednn(row, weight, *rest) for row, weight, _ in pairs],
            "by weights, oneDNN": lambda: [by_onednn(gradient.T, row.T, *rest) for row, _, gradient in pairs],
            "by inputs, oneDNN": lambda: [by_onednn(gradient, weight.T, *rest) for _, weight, gradient in pairs],
        }
    return found


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for columns, outputs in LAYERS[1:2] if chosen.quick else LAYERS:
        shapes = (2, BATCH, columns), (2, outputs, columns), (2, BATCH, outputs)
        calls = ways(*(torch.randn(shape, device=chosen.device) for shape in shapes))
        found[f"{columns}-{outputs}"] = as_dicts(interleaved(calls, **pace(chosen, 30)))
    return {"what": "two products, ratio to x W^T one after the other", "batch": BATCH, "layers": found}


if __name__ == "__main__":
    run(__doc__, measure)
