"""Mean and variance of a linear layer's outputs in compiled code on a CPU: two products as one batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.compiled_code import compiling
from bayeslim.ops import LinearOp, Op

__all__ = ["two_products"]


def two_products(op: Op, x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """`op(x, loc, bias)` and `op(x^2, exp(2 log_std))` as one batch of two products, forwards and backwards.

    That keeps the cores busier than one product after the other. A compiler writes matrices side by side at no cost;
    eager code would have to copy them.

    Returns:
        None where products stay apart: in eager code, on CUDA, under autocast, inside `torch.vmap`, for other maps.

    Example:
        >>> two_products(LinearOp(), x, weight.loc, weight.log_std(), None) is None  # not compiled
        True
    """
    if not compiling() or type(op) is not LinearOp or x.device.type != "cpu":
        return None
    if x.ndim < 2 or x.shape[-1] != loc.shape[1] or not x.dtype == loc.dtype == log_std.dtype:
        return None
    if torch.is_autocast_enabled("cpu") or torch._C._are_functorch_transforms_active():
        return None
    rows: Any = _TwoProducts.apply(x if x.ndim == 2 else x.flatten(0, -2), loc, log_std)
    output, spread = rows if x.ndim == 2 else (part.unflatten(0, x.shape[:-1]) for part in rows)
    # Of two views that leave compiled code as they are torch 2.11 loses the gradients.
    return output.clone() if bias is None else output + bias, spread


class _TwoProducts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        inputs, weights = torch.stack([x, x.square()]), torch.stack([loc, (2 * log_std).exp()])
        ctx.save_for_backward(inputs, weights)
        outputs = torch.bmm(inputs, weights.mT)
        return outputs[0], outputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        inputs, weights = ctx.saved_tensors
        by_outputs = torch.stack(gradients)
        by_weights = torch.bmm(by_outputs.mT, inputs)
        by_x = None
        if ctx.needs_input_grad[0]:
            by_inputs = torch.bmm(by_outputs, weights)
            by_x = by_inputs[0] + 2 * inputs[0] * by_inputs[1]
        return by_x, by_weights[0], 2 * by_weights[1] * weights[1]
