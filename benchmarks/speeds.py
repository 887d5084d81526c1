"""How fast a machine multiplies, copies and draws noise."""

from __future__ import annotations

import torch

from bayeslim.kernels.onednn import product_by_onednn
from bayeslim.runtime.timing import interleaved


@torch.no_grad()
def speeds(
    rows: int,
    columns: int,
    outputs: int,
    weights: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    rounds: int = 20,
) -> dict[str, float]:
    r"""Measure the rates that bound a network of given sizes.

    `flops` of a product (rows, columns) x (columns, outputs) by the fastest library that comes with torch, which is
    `2 rows columns outputs` operations;
    `bytes` per second read and written by a copy of `weights` float32 numbers; `normals` per second drawn by torch.

    Args:
        rows: examples in a batch.
        columns: inputs of the largest layer.
        outputs: outputs of the largest layer.
        weights: weights of the whole network, whose updates are what is copied.
        device: where to measure.
        dtype: of the product.
        rounds: measurements of each.

    Returns:
        The three rates, per second.

    Example:
        >>> speeds(256, 784, 300, 266_200)["flops"] / 1e9
        150.0
    """
    left, right = (torch.randn(shape, device=device, dtype=dtype) for shape in ((rows, columns), (outputs, columns)))
    source, target = (torch.randn(weights, device=device) for _ in range(2))
    found = interleaved(
        {
            "flops": lambda: product_by_onednn(left, right, None) if left.device.type == "cpu" else left @ right.T,
            "bytes": lambda: target.copy_(source),
            "normals": target.normal_,
        },
        rounds=rounds,
        device=device,
    )
    work = {"flops": 2 * rows * columns * outputs, "bytes": 8 * weights, "normals": weights}
    return {name: amount / found[name].seconds for name, amount in work.items()}
