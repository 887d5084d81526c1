"""The Student-t prior: ARD with its precision integrated out."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayeslim.priors.base import Prior, log_variance

__all__ = ["StudentT"]


class StudentT(Prior):
    r"""`p(w) = St(w; nu, 0, scale)`, the marginal of `N(0, 1/tau)` under `tau ~ Gamma(a, b)`.

    `nu = 2a`, `scale = sqrt(b / a)`; `a = b -> 0` tends to the log-uniform prior
    (arXiv 1811.00596, section 4). The KL is
    `-0.5 ln(2 pi e variance) - c + 0.5 (nu + 1) E_q[ln(1 + w^2 / (nu scale^2))]`, `c` the log of the
    normalising constant. With `z = w^2 / (nu scale^2)` the expectation follows from
    `ln(1 + z) = int_0^inf (1 - e^(-tz)) e^(-t) dt / t` and the Gaussian's closed form for
    `E[e^(-tz)]`; the trapezoidal rule in `ln t` then converges geometrically. With 40 nodes the
    expectation is within 5e-5 while `E[z] <= 1e8`, so the KL within `2.5e-5 (nu + 1)` nats: below 1e-4
    for `nu <= 3`.

    Args:
        nu: degrees of freedom, above 0.
        scale: scale, above 0.
        nodes: quadrature nodes.

    Example:
        >>> StudentT(nu=3.0, scale=0.5).kl(torch.zeros(2), torch.ones(2)).shape
        torch.Size([2])
    """

    def __init__(self, nu: float = 2.0, scale: float = 1.0, nodes: int = 40) -> None:
        super().__init__()
        if not (0 < nu < math.inf):
            raise ValueError(f"`nu` must be positive, got {nu}: pass e.g. 2.0")
        if not (0 < scale < math.inf):
            raise ValueError(f"`scale` must be positive, got {scale}: pass e.g. 1.0")
        if nodes < 2:
            raise ValueError(f"`nodes` must be at least 2, got {nodes}: pass e.g. 40")
        self.nu, self.scale, self.nodes = float(nu), float(scale), nodes

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        nu, scale = self.nu, self.scale
        log_normaliser = (
            math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi) - math.log(scale)
        )
        tail = self._expected_log1p(mean, variance)
        negative_entropy = -0.5 * (math.log(2 * math.pi * math.e) + log_variance(variance))
        return negative_entropy - log_normaliser + 0.5 * (nu + 1) * tail

    def _expected_log1p(self, mean: Tensor, variance: Tensor) -> Tensor:
        """`E[ln(1 + w^2 / (nu scale^2))]`: the integral over `u = ln t`, from the class docstring."""
        spread, offset = (part / (self.nu * self.scale**2) for part in (variance, mean.square()))
        # The integrand is e^u E[z] on the left and exp(-e^u) on the right.
        left = -(1 + spread + offset).detach().log() - 14
        step = (4 - left) / (self.nodes - 1)
        total = mean.new_zeros(())
        for node in range(self.nodes):
            t = (left + node * step).exp()
            widened = 1 + 2 * t * spread
            log_transform = -0.5 * widened.log() - t * offset / widened  # ln E[e^(-tz)]
            total = total - torch.expm1(log_transform) * torch.exp(-t)
        return total * step

    def config(self) -> dict[str, Any]:
        """Degrees of freedom, scale and quadrature nodes."""
        return {"nu": self.nu, "scale": self.scale, "nodes": self.nodes}

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        return f"nu={self.nu}, scale={self.scale}, nodes={self.nodes}"
