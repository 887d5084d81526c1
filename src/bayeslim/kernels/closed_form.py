"""Sums of KLs whose gradient has a closed form: fewer passes over the weights than differentiating term by term."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels.context import applied, may_be_followed, may_want_higher_derivatives, refuse_second_derivatives

__all__ = ["differentiated"]

Value = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
Slopes = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def differentiated(value: Value, slopes: Slopes, mean: Tensor, log_std: Tensor) -> Tensor:
    """A sum over weights whose gradient `slopes` computes, from one tensor that `value` keeps for it.

    Differentiating it twice is refused: differentiate `prior.kl(mean, variance).sum()` instead. Inside
    `torch.func.grad` and its kin, which may want more derivatives, `value` is differentiated as it stands.

    Args:
        value: of (mean, log_std): the sum, and what the slopes need.
        slopes: of (mean, kept, g): g times the derivatives by mean and by log_std.
        mean: posterior means.
        log_std: logs of the posterior standard deviations, in the same shape.

    Example:
        >>> ones = torch.ones(2, requires_grad=True)
        >>> differentiated(lambda m, s: (m.sum(), s), lambda m, s, g: (g.expand_as(m), 0 * s), ones, ones)
        tensor(2., grad_fn=<_TotalBackward>)
    """
    if may_be_followed() and may_want_higher_derivatives():
        return value(mean, log_std)[0]
    total: Any = applied(_Total, mean, log_std, value, slopes)
    return total[0]


class _Total(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, log_std: Tensor, value: Value, slopes: Slopes) -> tuple[Tensor, Tensor]:
        return value(mean, log_std)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        mean, _, _, ctx.slopes = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(mean, output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        refuse_second_derivatives()
        by_mean, by_log_std = ctx.slopes(*ctx.saved_tensors, gradients[0])
        return by_mean, by_log_std, None, None
