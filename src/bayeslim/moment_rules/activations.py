"""Moments of elementwise functions of a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian

__all__ = ["elementwise", "leaky_relu", "relu"]


def relu(x: Gaussian, inplace: bool = False) -> Gaussian:
    r"""Exact moments of `max(x, 0)`: those of a rectified Gaussian.

    With `z = mean / std`, `d` and `P` the standard normal density and distribution at `z`:
    `E = std (z P + d)`, `Var = variance (P + z^2 P (1 - P) + z d (1 - 2P) - d^2)`.
    The second form has no cancellation for `z > 0`, where `E[.^2] - E[.]^2` loses every digit.

    Args:
        x: the input.
        inplace: ignored; torch's own signature.
    """
    return leaky_relu(x, 0.0)


def leaky_relu(x: Gaussian, negative_slope: float = 0.01, inplace: bool = False) -> Gaussian:
    r"""Exact moments of `max(x, 0) + negative_slope min(x, 0)`.

    `f = a x + (1 - a) r` with `r = max(x, 0)` and `Cov[x, r] = variance P(z)`, so
    `Var = variance (a^2 + 2 a (1 - a) P) + (1 - a)^2 Var[r]`.

    Args:
        x: the input.
        negative_slope: the slope `a` below zero.
        inplace: ignored; torch's own signature.
    """
    # Beyond |z| = 40 every factor is constant. Both limits keep the gradients of a certain input finite.
    std = x.variance.clamp_min(1e-30).sqrt()
    z = (x.mean / std).clamp(-40, 40)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    # erfc, since torch's ndtr has no digits left below z = -4 in float32.
    above, below = (0.5 * torch.erfc(sign * z / math.sqrt(2)) for sign in (-1, 1))
    rectified = above + z.square() * above * below + z * density * (below - above) - density.square()
    a, b = negative_slope, 1 - negative_slope
    mean = a * x.mean + b * (x.mean * above + std * density)
    fraction = a * a + 2 * a * b * above + b * b * rectified
    return Gaussian(mean, x.variance * fraction.clamp_min(0.0))


def elementwise(function: Callable[..., Tensor], nodes: int = 16) -> Callable[..., Gaussian]:
    """Make the moment rule of a smooth elementwise `function` by Gauss-Hermite quadrature.

    With 16 nodes the variance is right to 1e-3 for a standard deviation up to 1 (3e-2 for the kinks of ELU and
    SELU) and to 10 % at 3.

    Args:
        function: a torch function of one tensor and options.
        nodes: evaluations per element; the rule is exact for polynomials below degree `nodes`.

    Returns:
        A rule `(Gaussian, *options) -> Gaussian`.
    """
    abscissae, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / math.sqrt(2 * math.pi)
    pairs = list(zip(abscissae.tolist(), weights.tolist(), strict=True))

    def rule(x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
        std = x.variance.clamp_min(torch.finfo(x.variance.dtype).tiny).sqrt()
        points = [(w, function(x.mean + t * std, *args, **kwargs)) for t, w in pairs]
        mean = torch.stack([weight * value for weight, value in points]).sum(0)
        spread = [weight * (value - mean).square() for weight, value in points]
        return Gaussian(mean, torch.stack(spread).sum(0))

    return rule
