"""Mean and variance of a linear layer's outputs in compiled code on a CPU: one function for two products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayeslim.gaussian import VARIANCE_FLOOR
from bayeslim.noise import normal_like
from bayeslim.products import product, suits_onednn

__all__ = ["draw_by_two_products", "two_products"]

MANY_EXAMPLES = 64
"""From here products are faster features first."""


def two_products(x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """`x loc^T + bias` and `x^2 exp(2 log_std)^T`: oneDNN's products, or MKL's as one batch, forwards and backwards.

    A batch keeps the cores busier than one product after the other. It is for compiled code: a compiler writes matrices
    side by side at no cost, eager code would have to copy them.

    Returns:
        None where products stay apart: on CUDA, under autocast, inside `torch.vmap`, in several precisions.

    Example:
        >>> two_products(x.half(), weight.loc, weight.log_std(), None) is None
        True
    """
    if not _fits(x, loc, log_std):
        return None
    mean, spread = _both(x, loc, log_std, features_first=False)
    # Of two views that leave compiled code as they are torch 2.11 loses the gradients.
    return mean.clone() if bias is None else mean + bias, spread


def draw_by_two_products(x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None) -> Tensor | None:
    """A draw of every output on its own from the moments that `two_products` gives, or None.

    Of many examples numbers lie features first, from the product to the next layer, as `W x^T` has them, which is
    faster than `x W^T` (`benchmarks/products.py`). To the caller the result looks as always.
    """
    if not _fits(x, loc, log_std):
        return None
    rows = x.flatten(0, -2)
    features_first = len(rows) >= MANY_EXAMPLES and not suits_onednn(rows, loc)
    mean, spread = _both(x, loc, log_std, features_first=features_first)
    noise = normal_like(mean.mT).mT if features_first else normal_like(mean)
    drawn = torch.addcmul(mean if bias is None else mean + bias, (spread + VARIANCE_FLOOR).sqrt(), noise)
    return drawn.contiguous()


def _fits(x: Tensor, loc: Tensor, log_std: Tensor) -> bool:
    """Whether these are rows of the right width on a CPU, in one precision."""
    if x.device.type != "cpu" or x.ndim < 2 or x.shape[-1] != loc.shape[1]:
        return False
    if not x.dtype == loc.dtype == log_std.dtype:
        return False
    return not (torch.is_autocast_enabled("cpu") or torch._C._are_functorch_transforms_active())


def _both(x: Tensor, loc: Tensor, log_std: Tensor, *, features_first: bool) -> tuple[Tensor, Tensor]:
    """Mean and variance of all outputs (..., out)."""
    rows = x if x.ndim == 2 else x.flatten(0, -2)
    found: Any = (
        _TwoProducts.apply(rows, loc, log_std)
        if suits_onednn(rows, loc)
        else _OneBatch.apply(rows, loc, log_std, features_first)
    )
    mean, spread = found if x.ndim == 2 else (part.unflatten(0, x.shape[:-1]) for part in found)
    return mean, spread


class _TwoProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        square, variance = x.square(), log_std.exp().square()
        ctx.save_for_backward(x, square, loc, variance)
        return product(x, loc), product(square, variance)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (x, square, loc, variance), (by_mean, by_spread), by_x = ctx.saved_tensors, gradients, None
        if ctx.needs_input_grad[0]:
            by_x = product(by_mean, loc.T) + 2 * x * product(by_spread, variance.T)
        return by_x, product(by_mean.T, x.T), 2 * product(by_spread.T, square.T) * variance


class _OneBatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor, features_first: bool) -> tuple[Tensor, Tensor]:
        # Data lie examples first. What needs a gradient was computed, and lies as the layer before has left it.
        inputs = _stacked([x, x.square()], features_first and ctx.needs_input_grad[0])
        weights = torch.stack([loc, log_std.exp().square()])
        ctx.save_for_backward(inputs, weights)
        ctx.features_first = features_first
        outputs = _products(inputs, weights.mT, features_first)
        return outputs[0], outputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        inputs, weights = ctx.saved_tensors
        by_outputs = _stacked(gradients, ctx.features_first)
        by_weights = torch.bmm(by_outputs.mT, inputs)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_inputs = _products(by_outputs, weights, ctx.features_first)
            by_x = by_inputs[0] + 2 * inputs[0] * by_inputs[1]
        return by_x, by_weights[0], 2 * by_weights[1] * weights[1], None


def _stacked(matrices: Sequence[Tensor], columns_first: bool) -> Tensor:
    """As one batch, in memory row by row or column by column."""
    return torch.stack([matrix.T for matrix in matrices]).mT if columns_first else torch.stack(list(matrices))


def _products(rows: Tensor, matrices: Tensor, columns_first: bool) -> Tensor:
    """`rows @ matrices` of every member of a batch, in memory row by row or column by column."""
    return torch.bmm(matrices.mT, rows.mT).mT if columns_first else torch.bmm(rows, matrices)
