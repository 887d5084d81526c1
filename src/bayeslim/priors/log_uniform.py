"""The improper log-uniform prior of variational dropout, through two published fits."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.log_alpha import log_alpha
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior, of_log_alpha

__all__ = ["LogUniform"]

# Molchanov et al. 2017, eq. 14.
K1, K2, K3 = 0.63576, 1.87320, 1.48695
# Kingma et al. 2015, eq. 14; the constant centres its error against the exact KL on alpha <= 1.
C1, C2, C3, KINGMA_CONSTANT = 1.16145124, -1.50204118, 0.58629921, 0.6554


class LogUniform(Prior):
    r"""`p(ln |w|) = const`: the prior under which Gaussian dropout becomes variational inference.

    The KL depends on `alpha = variance / mean^2` alone and falls as `alpha` grows: noisy weights
    are free, hence sparsity. It is normalised to vanish for `alpha -> inf`. No closed form exists;

    - `fit="molchanov"`: `0.5 softplus(-ln alpha) + k1 sigmoid(-(k2 + k3 ln alpha))`, within 0.0094
      nats of the exact value for `|ln alpha| <= 10`;
    - `fit="kingma"`: `-(0.5 ln alpha + c1 alpha + c2 alpha^2 + c3 alpha^3) + 0.6554`, within 0.0205
      for `alpha <= 1` and meaningless beyond (it falls to minus infinity), so it refuses a posterior
      that does not bound `alpha` by 1.

    Args:
        fit: which approximation to use.

    Example:
        >>> prior = LogUniform()
        >>> prior.kl(torch.ones(()), torch.ones(())).item()  # exact value: 0.42669
        0.4312...
    """

    def __init__(self, fit: Literal["molchanov", "kingma"] = "molchanov") -> None:
        super().__init__()
        if fit not in ("molchanov", "kingma"):
            raise ValueError(f"`fit` must be 'molchanov' or 'kingma', got {fit!r}")
        self.fit: Literal["molchanov", "kingma"] = fit

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        la = log_alpha(mean, variance)
        return _molchanov(la) if self.fit == "molchanov" else _kingma(la)

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """See `Prior.total`."""
        term, slope = (_molchanov, _molchanov_slope) if self.fit == "molchanov" else (_kingma, _kingma_slope)
        return of_log_alpha(term, slope, mean, log_std)

    def check(self, posterior: Posterior) -> None:
        """Refuse Kingma's polynomial where `alpha` may exceed 1."""
        if self.fit == "kingma" and posterior.max_alpha > 1:
            raise ValueError(
                "`fit='kingma'` holds only for alpha <= 1, and "
                f"{type(posterior).__name__} allows alpha up to {posterior.max_alpha}: use "
                "Multiplicative(max_alpha=1.0) as the posterior, or fit='molchanov'"
            )

    def config(self) -> dict[str, Any]:
        """The fit."""
        return {"fit": self.fit}

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        return f"fit={self.fit!r}"


def _molchanov(la: Tensor) -> Tensor:
    return 0.5 * F.softplus(-la) + K1 * torch.sigmoid(-(K2 + K3 * la))


def _molchanov_slope(la: Tensor) -> Tensor:
    bump = torch.sigmoid(-(K2 + K3 * la))
    return (bump * (bump - 1)).mul_(K1 * K3).sub_(la.neg().sigmoid_(), alpha=0.5)


def _kingma(la: Tensor) -> Tensor:
    alpha = la.clamp(max=0.0).exp()  # rounding may put alpha a hair above 1
    return KINGMA_CONSTANT - 0.5 * la - alpha * (C1 + alpha * (C2 + alpha * C3))


def _kingma_slope(la: Tensor) -> Tensor:
    alpha = la.clamp(max=0.0).exp()
    polynomial = alpha * (C1 + alpha * (2 * C2 + alpha * 3 * C3))
    return (polynomial * (la <= 0)).neg_().sub_(0.5)
