"""Gauss-Legendre quadrature, for priors whose KL has no closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

__all__ = ["Rule", "legendre_rule", "local_expectation"]


Rule = tuple[tuple[float, float], ...]
"""Pairs of abscissa and weight."""


def legendre_rule(nodes: int) -> Rule:
    """The Gauss-Legendre rule with `nodes` points on the unit interval."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return tuple(zip((0.5 * points + 0.5).tolist(), (0.5 * weights).tolist(), strict=True))


def local_expectation(
    function: Callable[[Tensor], tuple[Tensor, Tensor]],
    radius: float,
    mean: Tensor,
    log_std: Tensor,
    rule: Rule,
) -> Tensor:
    r"""`E[function(w)]` for `w ~ N(mean, std^2)` and a function that vanishes beyond `radius`.

    Each element integrates over its own window, the overlap of `[-radius, radius]` with
    `mean +- 8 std`, so that both a narrow Gaussian and a narrow function are resolved. The variable is
    `z = (w - mean) / std`, which loses no digits when `std` is far below `mean`. First derivatives are
    `d/dmean = E[function']` and `d/dlog_std = std E[z function']`; second ones are not available.

    Args:
        function: elementwise; returns its value and its derivative.
        radius: where the function has become negligible.
        mean: means, any shape.
        log_std: logs of the standard deviations, same shape.
        rule: where to evaluate `function`, e.g. `legendre_rule(24)`.

    Returns:
        The expectation, in the shape of `mean`.

    Example:
        >>> hat = lambda w: ((1 - w.abs()).clamp_min(0), -w.sign())
        >>> local_expectation(hat, 1.0, torch.zeros(1), torch.full((1,), math.log(1e-3)), legendre_rule(32))
        tensor([0.9992])
    """
    with torch.no_grad():
        std = log_std.exp().clamp_min(torch.finfo(log_std.dtype).tiny)
        low = ((-radius - mean) / std).clamp(-8, 8)
        width = ((radius - mean) / std).clamp(-8, 8) - low
        total, slope, slope_z = torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros_like(mean)
        for point, weight in rule:
            z = torch.add(low, width, alpha=point)
            density = (z * z).mul_(-0.5).exp_().mul_(weight)
            value, derivative = function(torch.addcmul(mean, z, std))
            total.addcmul_(density, value)
            density.mul_(derivative)
            slope.add_(density)
            slope_z.addcmul_(density, z)
        scale = width / math.sqrt(2 * math.pi)
        total, slope, slope_z = total * scale, slope * scale, slope_z * scale * std
    # The value with its slopes attached: three sums and no graph per node.
    return total + slope * (mean - mean.detach()) + slope_z * (log_std - log_std.detach())
