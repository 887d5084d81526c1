"""Moments of resized images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.estimators import without_float16
from bayeslim.gaussian import Gaussian
from bayeslim.posteriors.base import wide

__all__ = ["interpolate"]


def interpolate(
    input: Gaussian,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Gaussian:
    r"""`y = sum_i w_i x_i` at each place: `mean = sum w_i m_i`, `variance = sum w_i^2 v_i`. Exact in every mode.

    The weights are products of one matrix per axis, which torch gives for the rows of an identity; "nearest" copies.
    Copies and neighbours that share inputs count as independent from then on, as those of `repeat` do: where they are
    averaged again the variance is too small. Two by two copies of a pixel that are averaged give back its variance,
    and the rules a quarter of it.

    Args:
        input: (batch, channels, *positions).
        size: the positions of the result, or None.
        scale_factor: their ratio to those of the input, or None.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
        align_corners: whether the outermost places of both agree.
        recompute_scale_factor: whether the ratio is taken anew from the rounded size.
        antialias: whether to widen the weights where the result is smaller.
    """
    corners = {} if align_corners is None else {"align_corners": align_corners}

    def resized(x: Tensor, size: Any, scale_factor: Any, recompute: bool | None = None) -> Tensor:
        options = {**corners, "recompute_scale_factor": recompute, "antialias": antialias}
        return F.interpolate(x, size, scale_factor, mode, **options)

    mean = resized(input.loc, size, scale_factor, recompute_scale_factor)
    if mode in ("nearest", "nearest-exact"):
        variance = resized(wide(input.variance), size, scale_factor, recompute_scale_factor)
        return Gaussian.of(mean, variance, input.mode)
    count = input.ndim - 2
    by_size = scale_factor is None or bool(recompute_scale_factor) or mode == "area"
    factors = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * count
    with without_float16(mean.device.type):
        variance = wide(input.variance)
        for axis, (extent, out) in enumerate(zip(input.shape[2:], mean.shape[2:], strict=True)):
            rows = torch.eye(extent, dtype=variance.dtype, device=variance.device)
            rows = rows.reshape(extent, *[1] * count, extent)  # always last: antialias fails on a last axis of one
            alone = [1] * (count - 1)
            rows = resized(rows, [*alone, out], None) if by_size else resized(rows, None, [*alone, factors[axis]])
            squares = rows.reshape(extent, out).square()
            variance = (variance.movedim(axis + 2, -1) @ squares).movedim(-1, axis + 2)
    return Gaussian.of(mean, variance, input.mode)
