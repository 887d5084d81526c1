"""What each kernel computes, in plain operations: the definition, and what every fast path is held against.

A posterior `q` is known here by its methods alone, an `op` as a map that is linear in its weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels.context import now
from bayeslim.kernels.noise import normal_like
from bayeslim.kernels.precision import typed_as, wide, without_float16

__all__ = [
    "VARIANCE_FLOOR",
    "draw_by_output",
    "draw_by_weight",
    "draw_weight",
    "outer_products",
    "output_moments",
    "propagate",
    "weight_variance",
]

VARIANCE_FLOOR = 1e-16
"""Below this a value is certain to float precision; it keeps sqrt differentiable at zero."""


def draw_weight(q: Any) -> Tensor:
    """`mean + std * noise` for independent weights."""
    mean = q.mean()
    return torch.addcmul(mean, q.log_std().exp().to(mean.dtype), normal_like(mean))


def weight_variance(q: Any) -> Tensor:
    """`std^2` of every weight."""
    return (2 * q.log_std()).exp()


def outer_products(v: Tensor, u: Tensor) -> Tensor:
    """`v u^T` of factors with few columns; for a compiler as a sum, which it need not store."""
    if now(v).compiling:
        return torch.stack([v[:, r, None] * u[:, r] for r in range(v.shape[1])]).sum(0)
    return v @ u.T


def draw_by_weight(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """`op(x, W, bias)` for one draw of the weight."""
    return op(x, q.rsample(), bias)


def draw_by_output(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """A draw of every output on its own, from its mean and variance."""
    mean, variance = output_moments(q, op, x, bias)
    return torch.addcmul(mean, (variance + VARIANCE_FLOOR).sqrt().to(mean.dtype), normal_like(mean))


def output_moments(q: Any, op: Any, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W, bias)` for a known input; in float32 where float16 would underflow."""
    weight = q.mean()
    mean = op(typed_as(weight, x), weight, bias)
    with without_float16(x.device.type):
        return mean, q.output_variance(op, wide(x))


def propagate(q: Any, op: Any, mean: Tensor, variance: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W, bias)` for an input of independent Gaussians.

    `Var = Var_W[op(mean, W)] + op(variance, E[W]^2 + Var[W])`.
    """
    weight = q.mean()
    output = op(typed_as(weight, mean), weight, bias)
    with without_float16(mean.device.type):
        variance = wide(variance)
        second_moment = wide(weight).square() + q.variance().to(variance.dtype)
        return output, q.output_variance(op, wide(mean)) + op(variance, second_moment)
