"""Moments of functions made of straight pieces: clamps, absolute values, rectifiers with a learned slope. All exact."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian
from bayeslim.kernels.rectified import FAR, FAR_DOUBLE, rectified_moments

__all__ = [
    "abs",
    "clamp",
    "clamp_max",
    "clamp_min",
    "hardsigmoid",
    "hardtanh",
    "normal_at",
    "prelu",
    "relu6",
    "rrelu",
]

Bound = Any
"""A number, a tensor, or None for none."""


def clamp(input: Gaussian, min: Bound = None, max: Bound = None) -> Gaussian:
    r"""Moments of `min(max(x, a), b)`: exactly those of a Gaussian whose tails are piled up at the bounds.

    With `s` the standard deviation, `alpha = (a - m) / s` and `beta = (b - m) / s`, `d` and `P` the standard normal
    density and distribution, `h_a = alpha P(alpha) + d(alpha)` and `h_b = d(beta) - beta P(-beta)`:
    `E = m + s (h_a - h_b)`, `Var = v (P(beta) - P(alpha) + alpha h_a - beta h_b - (h_a - h_b)^2)`. In mode "taylor" the
    variance is kept where the mean lies between the bounds, 0 elsewhere.

    Args:
        input: the input.
        min: the lower bound `a`, a number or a tensor; None for none.
        max: the upper bound `b`, likewise; where it lies below `min` the result is `max`, as in torch.

    Raises:
        TypeError: for an uncertain bound.
        ValueError: without any bound.
    """
    if isinstance(min, Gaussian) or isinstance(max, Gaussian):
        raise TypeError("no moment rule for `clamp` by an uncertain bound: use torch.maximum and torch.minimum")
    if min is None and max is None:
        raise ValueError("`min` or `max` of `clamp` must be given: pass e.g. min=0.0")
    lower, upper = None if _is(min, -math.inf) else min, None if _is(max, math.inf) else max
    value = torch.clamp(input.loc, min, max)
    if input.mode == "taylor":
        inside = value == input.loc
        return Gaussian.of(value, (input.variance * inside).expand_as(value), input.mode)
    m, v = (part.expand_as(value) for part in (input.loc, input.variance))
    if lower is None and upper is None:
        return Gaussian.of(m, v, input.mode)
    if upper is None or lower is None:
        sign: float = 1.0 if upper is None else -1.0
        bound: Any = lower if upper is None else upper
        mean, variance = rectified_moments(sign * (m - bound), v, 0.0)
        return Gaussian.of(bound + sign * mean, variance, input.mode)
    a, b = (torch.as_tensor(bound, dtype=m.dtype, device=m.device) for bound in (lower, upper))
    return Gaussian.of(*_between(m, v, torch.minimum(a, b), b), input.mode)


def clamp_min(input: Gaussian, min: Bound) -> Gaussian:
    """`max(x, a)`: see `clamp`."""
    return clamp(input, min)


def clamp_max(input: Gaussian, max: Bound) -> Gaussian:
    """`min(x, b)`: see `clamp`."""
    return clamp(input, None, max)


def hardtanh(input: Gaussian, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Gaussian:
    """`clamp` under torch's other name."""
    return clamp(input, min_val, max_val)


def relu6(input: Gaussian, inplace: bool = False) -> Gaussian:
    """`clamp` between 0 and 6."""
    return clamp(input, 0.0, 6.0)


def hardsigmoid(input: Gaussian, inplace: bool = False) -> Gaussian:
    """`clamp(x + 3, 0, 6) / 6`: see `clamp`."""
    raised = clamp(Gaussian.of(input.loc + 3, input.variance, input.mode), 0.0, 6.0)
    return Gaussian.of(raised.loc / 6, raised.variance / 36, input.mode)


def abs(input: Gaussian) -> Gaussian:
    r"""Moments of `|x|`, exactly those of a folded Gaussian: `E = m (2 P(z) - 1) + 2 s d(z)`, `Var = m^2 + v - E^2`.

    `z = m / s`, `d` and `P` the standard normal density and distribution. In mode "taylor" `|m|` and `v`.
    """
    if input.mode == "taylor":
        return Gaussian.of(input.loc.abs(), input.variance, input.mode)
    return Gaussian.of(*rectified_moments(input.loc, input.variance, -1.0), input.mode)


def prelu(input: Gaussian, weight: Tensor) -> Gaussian:
    r"""Moments of `max(x, 0) + a min(x, 0)`, exact: those of `activations.leaky_relu`, for a slope `a` per channel.

    Args:
        input: (batch, channels, *positions).
        weight: `a`, one for all or (channels,), and certain.

    Raises:
        TypeError: for an uncertain slope.
    """
    if isinstance(weight, Gaussian):
        raise TypeError("no moment rule for `prelu` with an uncertain weight: keep it a plain parameter")
    m, v = input.loc, input.variance
    slope = weight.reshape(-1, *[1] * (input.ndim - 2)) if input.ndim > 1 else weight
    if input.mode == "taylor":
        slope = torch.where(m > 0, torch.ones_like(m), slope)
        return Gaussian.of(m * slope, v * slope.square(), input.mode)
    rectified, variance = rectified_moments(m, v, 0.0)
    _, above = normal_at((m / v.clamp_min(1e-30).sqrt()).clamp(-FAR_DOUBLE, FAR_DOUBLE))
    rest = 1 - slope
    variance = (slope.square() + 2 * slope * rest * above) * v + rest.square() * variance
    return Gaussian.of(slope * m + rest * rectified, variance.clamp_min(0), input.mode)


def rrelu(
    input: Gaussian, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Gaussian:
    """A leaky rectifier of slope `(lower + upper) / 2`, as in evaluation. Exact.

    Raises:
        TypeError: in training, where slopes are drawn.
    """
    if training:
        raise TypeError("no moment rule for `rrelu` in training, where it draws its slopes: call model.eval()")
    return prelu(input, input.loc.new_tensor((lower + upper) / 2))


def normal_at(z: Tensor) -> tuple[Tensor, Tensor]:
    """Density and distribution function of the standard normal at `z`."""
    return torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi), 0.5 * (1 + torch.erf(z / math.sqrt(2)))


def _between(m: Tensor, v: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance between two finite bounds; see `clamp`."""
    far = FAR_DOUBLE if m.dtype == torch.float64 else FAR
    s = v.clamp_min(1e-30).sqrt()
    alpha, beta = ((bound - m) / s for bound in (a, b))
    below, above = alpha > far, beta < -far  # the bound itself is more precise there
    alpha, beta = alpha.clamp(-far, far), beta.clamp(-far, far)
    (density_a, under_a), (density_b, under_b) = normal_at(alpha), normal_at(beta)
    h_a, h_b = alpha * under_a + density_a, density_b - beta * (1 - under_b)
    mean = torch.where(below, a, torch.where(above, b, m + s * (h_a - h_b)))
    fraction = under_b - under_a + alpha * h_a - beta * h_b - (h_a - h_b).square()
    return mean, v * fraction.clamp(0, 1)


def _is(bound: Any, number: float) -> bool:
    return not isinstance(bound, Tensor) and bound == number
