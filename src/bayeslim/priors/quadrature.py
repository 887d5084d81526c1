"""Gauss-Legendre quadrature, for priors whose KL has no closed form."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

__all__ = ["local_expectation"]


@functools.cache
def _nodes(count: int) -> tuple[tuple[float, float], ...]:
    """Abscissae and weights for the unit interval."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return tuple(zip((0.5 * points + 0.5).tolist(), (0.5 * weights).tolist(), strict=True))


def local_expectation(
    function: Callable[[Tensor], Tensor],
    radius: float,
    mean: Tensor,
    variance: Tensor,
    nodes: int,
) -> Tensor:
    r"""`E[function(w)]` for `w ~ N(mean, variance)` and a function that vanishes beyond `radius`.

    Each element integrates over its own window, the overlap of `[-radius, radius]` with
    `mean +- 8 std`, so that both a narrow Gaussian and a narrow function are resolved. The window is
    a constant to autograd: the integrand is negligible at its ends.

    Args:
        function: elementwise function of a tensor.
        radius: where the function has become negligible.
        mean: means, any shape.
        variance: variances, same shape.
        nodes: number of evaluations of `function`.

    Returns:
        The expectation, in the shape of `mean`.

    Example:
        >>> hat = lambda w: (1 - w.abs()).clamp_min(0)
        >>> local_expectation(hat, 1.0, torch.zeros(1), torch.full((1,), 1e-6), nodes=32)
        tensor([0.9992])
    """
    std = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
    with torch.no_grad():
        low = (mean - 8 * std).clamp(-radius, radius)
        width = (mean + 8 * std).clamp(-radius, radius) - low
    total = torch.zeros_like(mean)
    for point, weight in _nodes(nodes):
        w = low + point * width
        density = (-0.5 * ((w - mean) / std).square()).exp()
        total = total + weight * density * function(w)
    return total * width / (std * math.sqrt(2 * math.pi))
