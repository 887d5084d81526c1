"""Covariances through activations."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bayeslim.full_covariance.joint import JointGaussian
from bayeslim.gaussian import Gaussian, Mode
from bayeslim.moment_rules.activations import leaky_relu

__all__ = ["activation", "softmax"]

ORDER = 8
"""Terms of the Hermite series; see `activation` for the error of what is left out."""
NODES = 64
"""Evaluations per element in Gauss-Hermite quadrature."""


class Expansion(NamedTuple):
    """An activation `f` of `x = mean + std t`, `t ~ N(0, 1)`, in Hermite polynomials of `t`."""

    mean: Tensor
    """`E[f]`."""
    variance: Tensor
    """`Var[f]`."""
    slopes: list[Tensor]
    """`E[f He_n(t)] / std = E[f' He_{n-1}(t)]` for n = 1, ..., ORDER; the first is the expected slope."""


def activation(layer: nn.Module, x: JointGaussian, mode: Mode) -> JointGaussian:
    r"""An elementwise activation `f` of jointly Gaussian inputs.

    "exact": marginal means and variances are those of `f` (closed form for ReLU and leaky ReLU, quadrature for
    others), and by Mehler's formula `Cov[f(x_i), f(x_j)] = C_ij sum_n c_ni c_nj rho^{n-1} / n!`, `c_n` being the
    `slopes` of `Expansion` and `rho` the correlation. Its first term is Stein's lemma, `E[f'] E[f'] C_ij`. Eight terms
    are taken; for ReLU at most `0.0019 |rho|^9 std_i std_j` is left out (1e-4 for `|rho| = 0.7`), and the result is
    positive semi-definite for every order.

    "taylor": mean `f(mean)` and covariance `J C J^T` with `J = diag(f'(mean))`, as in the original VDP. Inactive units
    lose their variance.

    Args:
        layer: an activation module.
        x: the input.
        mode: which of the two.
    """
    if mode == "taylor":
        mean, slope = _with_slope(layer, x.mean)
        slope = slope.reshape(x.blocks.shape[:3])
        return JointGaussian(mean, x.blocks * slope[..., None] * slope[..., None, :])
    if isinstance(layer, nn.ReLU | nn.LeakyReLU):
        found = _rectifier(layer.negative_slope if isinstance(layer, nn.LeakyReLU) else 0.0, x.marginals())
    else:
        found = _smooth(layer, x.marginals())
    std, variance, *slopes = (v.reshape(x.blocks.shape[:3]) for v in (_std(x.variance), found.variance, *found.slopes))
    # Recomputed in the backward pass: the series would keep eight more matrices of the size of the covariance.
    blocks = checkpoint(_mehler, x.blocks, std, variance, *slopes, use_reentrant=False, preserve_rng_state=False)
    return JointGaussian(found.mean, cast(Tensor, blocks))


def softmax(layer: nn.Softmax, x: JointGaussian) -> JointGaussian:
    """First order: mean `p`, the softmax of the mean, and covariance `J C J^T`, `J = diag(p) - p p^T`."""
    if x.mean.ndim != 2 or layer.dim not in (1, -1):
        raise ValueError(
            f"full_covariance of softmax needs inputs (B, classes) and dim=-1, got inputs of shape "
            f"{tuple(x.shape)} and dim={layer.dim}: flatten before it, and pass nn.Softmax(-1)"
        )
    probabilities = layer(x.mean)
    jacobian = torch.diag_embed(probabilities) - probabilities[:, :, None] * probabilities[:, None]
    return JointGaussian(probabilities, (jacobian @ x.covariance @ jacobian)[:, None])


def _mehler(blocks: Tensor, std: Tensor, variance: Tensor, *slopes: Tensor) -> Tensor:
    """The series of `activation` in Horner's form, with the exact variances on the diagonal."""
    correlation = blocks / std[..., None] / std[..., None, :]
    series = torch.zeros_like(blocks)
    for order in range(len(slopes), 0, -1):
        slope = slopes[order - 1] / math.sqrt(math.factorial(order))
        series = series * correlation + slope[..., None] * slope[..., None, :]
    result = blocks * series
    # What the series lacks on the diagonal is positive; rounding and quadrature must not make it negative.
    diagonal = torch.maximum(variance, result.diagonal(dim1=-2, dim2=-1))
    return result.diagonal_scatter(diagonal, dim1=-2, dim2=-1)


def _rectifier(negative_slope: float, x: Gaussian) -> Expansion:
    """Closed form for `a x + (1 - a) max(x, 0)`, whose slope is a step."""
    found = leaky_relu(x, negative_slope)
    z = (x.loc / _std(x.variance)).clamp(-40, 40)
    above = 0.5 * torch.erfc(-z / math.sqrt(2))
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    # The slope jumps by 1 - a at t = -z, and He_{n-1} phi integrates to He_{n-2}(-z) phi(z) above it.
    jumps = [(1 - negative_slope) * density * h for h in _hermite(-z, ORDER - 1)]
    return Expansion(found.loc, found.variance, [negative_slope + (1 - negative_slope) * above, *jumps])


def _smooth(layer: nn.Module, x: Gaussian) -> Expansion:
    """Gauss-Hermite quadrature of the activation and its slope, a jump of the slope at zero split off.

    The jump is that of a multiple of ReLU, whose expansion is known, and expansions add; quadrature of a jump would be
    off by several per cent. Errors are below 1e-6 for smooth activations and 5e-3 for ELU and SELU (std below 1).
    """
    std, jump = _std(x.variance), _jump(layer)
    nodes, weights = (
        torch.as_tensor(values, dtype=std.dtype, device=std.device).view(-1, *[1] * std.ndim)
        for values in np.polynomial.hermite_e.hermegauss(NODES)
    )
    weights = weights / math.sqrt(2 * math.pi)
    points = x.loc + nodes * std
    values, slopes = _with_slope(layer, points)
    corner = _rectifier(0.0, x)
    mean = (weights * (values - jump * points.relu())).sum(0) + jump * corner.mean
    variance = (weights * (values - mean).square()).sum(0)
    rest = slopes - jump * (points > 0).to(slopes.dtype)
    orders = zip(_hermite(nodes, ORDER), corner.slopes, strict=True)
    return Expansion(mean, variance, [(weights * rest * h).sum(0) + jump * slope for h, slope in orders])


def _jump(layer: nn.Module) -> float:
    """How much the slope rises at zero."""
    if isinstance(layer, nn.SELU):
        return 1.0507009873554805 * (1 - 1.6732632423543772)  # scale (1 - alpha), Klambauer et al. 2017
    return 1 - layer.alpha if isinstance(layer, nn.ELU) else 0.0


def _with_slope(layer: nn.Module, points: Tensor) -> tuple[Tensor, Tensor]:
    """The activation and its derivative at the points."""
    # A copy, since the module may work in place.
    return cast(tuple[Tensor, Tensor], torch.func.jvp(layer, (points.clone(),), (torch.ones_like(points),)))


def _hermite(t: Tensor, count: int) -> list[Tensor]:
    """`He_0(t), He_1(t), ...`, by `He_{n+1} = t He_n - n He_{n-1}`."""
    found = [torch.ones_like(t), t]
    for n in range(1, count):
        found.append(t * found[n] - n * found[n - 1])
    return found[:count]


def _std(variance: Tensor) -> Tensor:
    """Standard deviations that can be divided by and differentiated, also where a feature is certain."""
    return variance.clamp_min(1e-30).sqrt()
