"""Mean and variance of a rectified Gaussian, and their gradients, in as few passes over memory as they need."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.kernels.context import applied, may_be_followed, transforms

__all__ = ["rectified_moments"]

FAR, FAR_DOUBLE = 6.0, 9.0
"""Deviations from zero beyond which a rectified value is the input or 0, to single and to double precision."""
NEAR, NEAR_DOUBLE = 1e-6, 1e-12
"""Distance from zero below which `P(z) = gelu(z) / z` is taken at zero instead, ..."""
AT_ZERO = 1e-20
"""... which stands for zero in that quotient, and is lost in any larger number."""
LOG_PEAK = -0.5 * math.log(2 * math.pi)
"""The log of the normal density at zero."""
LOG2_E = 1 / math.log(2)
"""`e^x = 2^(x LOG2_E)`, which a CPU computes in less time, see `eager_cpu._exp`."""
PIECE = 2**18
"""Elements of a piece on a CPU: some eight tensors of that many stay in the caches, and no memory is asked for anew."""


def rectified_moments(mean: Tensor, variance: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of `max(x, 0) + slope min(x, 0)` for `x ~ N(mean, variance)`.

    With `z = mean / std`, `d` and `P` the normal density and distribution at `z`, `h = z P + d` and
    `a = slope`, `b = 1 - a`: `E = a mean + b std h` and
    `Var = variance (a^2 + 2 a b P + b^2 (P + h (z - h)))`, where the last term is that of `max(x, 0)`.

    In float32 the errors are below 2e-6 of the input's deviation and 5e-6 of its variance. Gradients are in closed form
    (`dE/dmean = P` and `dVar/dmean = 2 E (1 - P)` for a slope of 0) and cannot be differentiated again.

    Args:
        mean: the means.
        variance: the variances, same shape.
        slope: the slope below zero.
    """
    if variance.dtype == torch.float16:  # which has no numbers small enough
        found = rectified_moments(mean.float(), variance.float(), slope)
        return found[0].to(mean.dtype), found[1].half()
    output: Any = (
        applied(_Rectified, mean, variance, slope)
        if torch.is_grad_enabled() and _may_need_gradients(mean, variance)
        else _forward(mean, variance, slope, 2)
    )
    return output[0], output[1]


def _may_need_gradients(*tensors: Tensor) -> bool:
    """Whether one of them does; tensors inside torch.vmap do not tell, nor do all in compiled code."""
    return may_be_followed() or any(tensor.requires_grad for tensor in tensors)


def _forward(mean: Tensor, variance: Tensor, slope: float, outputs: int) -> tuple[Tensor, ...]:
    """The first `outputs` of `_values`, piece by piece where the tensors are larger than the caches of a processor."""
    if may_be_followed() and not transforms():  # by a compiler
        return _formula(mean, variance, slope)[:outputs]
    if (
        transforms()  # inside torch.vmap a view of all elements is not one of memory
        or mean.device.type != "cpu"
        or mean.numel() <= PIECE
        or not (mean.is_contiguous() and variance.is_contiguous())
    ):
        return _values(mean, variance, slope, outputs)
    kind = torch.promote_types(mean.dtype, variance.dtype)  # the variance may be kept wider than the mean
    whole = tuple(torch.empty_like(mean, dtype=kind) for _ in range(outputs))
    for means, variances, *parts in zip(*(t.view(-1).split(PIECE) for t in (mean, variance, *whole)), strict=True):
        found = _values(means, variances, slope, outputs, (parts[0], parts[1]))
        for part, value in zip(parts[2:], found[2:], strict=True):
            part.copy_(value)
    return whole


def _formula(mean: Tensor, variance: Tensor, slope: float) -> tuple[Tensor, ...]:
    """As `_values`, in plain arithmetic: a compiler makes one pass of it."""
    a, b = slope, 1 - slope
    far, near = (FAR_DOUBLE, NEAR_DOUBLE) if mean.dtype == torch.float64 else (FAR, NEAR)
    std = variance.clamp_min(1e-30).sqrt()
    z = (mean / std).clamp(-far, far)
    z = torch.where(z.abs() < near, near, z)
    above = F.gelu(z) / z
    density = torch.exp(-0.5 * z * z + LOG_PEAK)
    h = (z * above + density).relu()
    fraction = (above + h * (z - h)).clamp(0, 1)
    rectified = h * std + (mean - far * std).relu()
    if a == 0:
        return rectified, fraction * variance, above, density / std
    spread = (a * a + 2 * a * b * above + b * b * fraction) * variance
    return a * mean + b * rectified, spread, above, density / std, rectified


def _values(
    mean: Tensor,
    variance: Tensor,
    slope: float,
    outputs: int,
    out: tuple[Tensor, Tensor] | tuple[None, None] = (None, None),
) -> tuple[Tensor, ...]:
    """Mean, variance, `P`, `d / std` and `E[max(x, 0)]`, as many as are wanted; the first two into `out`, if given.

    In place as far as torch.vmap follows: over `clamp_` and `addcmul_` it would loop.
    """
    a, b = slope, 1 - slope
    far, near = (FAR_DOUBLE, NEAR_DOUBLE) if mean.dtype == torch.float64 else (FAR, NEAR)
    per_std = variance.clamp_min(1e-30).rsqrt_()
    z = F.hardshrink(F.hardtanh_(mean * per_std, -far, far), near).add_(AT_ZERO)
    h = F.gelu(z)  # z P(z), and five times faster than torch's erf
    above = h / z
    density = torch.addcmul(z.new_full((), LOG_PEAK * LOG2_E), z, z, value=-0.5 * LOG2_E).exp2_()
    h.add_(density).relu_()
    fraction = F.hardtanh_(torch.addcmul(above, z.sub_(h), h), 0, 1)
    std = per_std.reciprocal()
    beyond = torch.add(mean, std, alpha=-far).relu_()
    if a == 0:
        found = torch.addcmul(beyond, h, std, out=out[0]), torch.mul(fraction, variance, out=out[1])
        return found if outputs == 2 else (*found, above, density.mul_(per_std))
    rectified = torch.addcmul(beyond, h, std)
    spread = torch.mul(a * a + 2 * a * b * above + b * b * fraction, variance, out=out[1])
    found = torch.add(a * mean, rectified, alpha=b, out=out[0]), spread
    return found if outputs == 2 else (*found, above, density.mul_(per_std), rectified)


class _Rectified(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(mean: Tensor, variance: Tensor, slope: float) -> tuple[Tensor, ...]:
        return _forward(mean, variance, slope, 4 if slope == 0 else 5)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        mean, variance, ctx.slope = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.set_materialize_grads(False)  # zeros for those that have none
        # Without a slope the inputs need not be kept: only as much as a plain rectifier keeps, three times.
        extra = (output[0],) if ctx.slope == 0 else (output[4], mean, variance)
        ctx.save_for_backward(*output[2:4], *extra)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        above, ratio, rectified, *inputs = ctx.saved_tensors
        a, b = ctx.slope, 1 - ctx.slope
        gradients = tuple(torch.zeros_like(above) if part is None else part for part in gradients[:2])
        of_mean, of_variance = gradients if a == 0 else (b * gradients[0], b * b * gradients[1])
        # With R = E[max(x, 0)]: dR = (P, d / 2s), dVar = (2 R (1 - P), P - R d / s) for (mean, variance).
        both = (rectified * of_variance).mul_(2)
        difference = of_mean - both
        to_mean = torch.addcmul(both, above, difference)
        del both  # so that no more than three tensors are held at once
        to_variance = torch.addcmul(above * of_variance, ratio, difference, value=0.5)
        if a != 0:
            mean, variance = inputs
            to_mean += a * gradients[0] + 2 * a * b * ratio * variance * gradients[1]
            to_variance += (a * a + a * b * (2 * above - ratio * mean)) * gradients[1]
        return to_mean, to_variance, None
