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
    function: Callable[[Tensor], Tensor],
    radius: float,
    mean: Tensor,
    variance: Tensor,
    rule: Rule,
) -> Tensor:
    r"""`E[function(w)]` for `w ~ N(mean, variance)` and a function that vanishes beyond `radius`.

    Each element integrates over its own window, the overlap of `[-radius, radius]` with
    `mean +- 8 std`, so that both a narrow Gaussian and a narrow function are resolved. The variable is
    `z = (w - mean) / std`, which loses no digits when `std` is far below `mean`. The window is a
    constant to autograd: the integrand is negligible at its ends.

    Args:
        function: elementwise function of a tensor.
        radius: where the function has become negligible.
        mean: means, any shape.
        variance: variances, same shape.
        rule: where to evaluate `function`, e.g. `legendre_rule(24)`.

    Returns:
        The expectation, in the shape of `mean`.

    Example:
        >>> hat = lambda w: (1 - w.abs()).clamp_min(0)
        >>> local_expectation(hat, 1.0, torch.zeros(1), torch.full((1,), 1e-6), legendre_rule(32))
        tensor([0.9992])
    """
    std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
    with torch.no_grad():
        low = ((-radius - mean) / std).clamp(-8, 8)
        width = ((radius - mean) / std).clamp(-8, 8) - low
    total = torch.zeros_like(mean)
    for point, weight in rule:
        z = low + point * width
        total = total + weight * (-0.5 * z.square()).exp() * function(mean + z * std)
    return total * width / math.sqrt(2 * math.pi)
