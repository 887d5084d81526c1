"""Automatic relevance determination: priors whose variance is fitted to the posterior."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.checks.numbers import check_number
from bayeslim.kernels import differentiated
from bayeslim.log_alpha import log_alpha
from bayeslim.priors.base import Prior, log_variance, of_log_alpha

__all__ = ["ARD", "GammaARD"]


class ARD(Prior):
    r"""`p(w_i) = N(0, 1 / tau_i)` with every precision `tau_i` at its optimum.

    The optimum `tau* = 1 / (mean^2 + variance)` gives
    `KL = 0.5 ln(1 + mean^2 / variance) = 0.5 softplus(-ln alpha)`: a proper bound with the same
    push to sparsity as the log-uniform prior, and never more than 0.636 nats below it
    (variational dropout via empirical Bayes, arXiv 1811.00596, section 3).

    Example:
        >>> ARD().kl(torch.ones(()), torch.ones(())).item()  # 0.5 ln 2
        0.3465...
    """

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        return 0.5 * F.softplus(-log_alpha(mean, variance))

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """See `Prior.total`: the slope by `ln alpha` is `-sigmoid(-ln alpha) / 2`."""
        return of_log_alpha(
            lambda la: F.softplus(-la).mul_(0.5), lambda la: la.neg().sigmoid_().mul_(-0.5), mean, log_std
        )

    def config(self) -> dict[str, Any]:
        """Nothing to configure."""
        return {}


class GammaARD(Prior):
    r"""ARD with a `Gamma(a, b)` hyperprior (shape, rate) on each precision, at its MAP.

    `tau* = (2a - 1) / (mean^2 + variance + 2b)` and the term to minimise is
    `KL(q || N(0, 1/tau*)) - ln Gamma(tau*; a, b)
    = 0.5 (2a - 1) ln(mean^2 + variance + 2b) - 0.5 ln variance - C`,
    `C = 1 - a + a ln b - ln Gamma(a) + 0.5 (2a - 1) ln(2a - 1)` (arXiv 1811.00596, section 4).
    Because a density is subtracted this may be negative. For `1/2 < a < 1` it falls for ever as the
    variance grows: bound the scales, `MeanField(max_scale=exp(-4))`, as the paper does.

    Args:
        a: shape, above 1/2; the larger the sparser (0.505 to 0.52 in the paper).
        b: rate, above 0.

    Example:
        >>> GammaARD(a=0.51, b=1e-8).kl(torch.zeros(2), torch.full((2,), 1e-4)).shape
        torch.Size([2])
    """

    def __init__(self, a: float = 0.51, b: float = 1e-8) -> None:
        super().__init__()
        check_number("a", a, "(0.5, inf)", "pass e.g. 0.51")
        check_number("b", b, "(0, inf)", "pass e.g. 1e-8")
        self.a, self.b = float(a), float(b)

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        return self._term(mean, 0.5 * log_variance(variance))[0]

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """See `Prior.total`.

        With `h^2 = mean^2 + variance + 2b` the slopes are `(2a - 1) mean / h^2` and, by the log of the standard
        deviation, `(2a - 1) variance / h^2 - 1`.
        """
        surplus, offset = 2 * self.a - 1, math.sqrt(2 * self.b)

        def value(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
            term, size = self._term(mean, log_std)
            return term.sum(), size

        def slopes(mean: Tensor, size: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            share = mean / size
            rest = (offset / size).square_().addcmul_(share, share)  # 1 - variance / h^2
            return share.div_(size).mul_(surplus * g), rest.mul_(-surplus * g).add_((surplus - 1) * g)

        return differentiated(value, slopes, mean, log_std)

    def _term(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """The KL of every weight, and `h = sqrt(mean^2 + variance + 2b)` without squares, which might overflow."""
        a, b = self.a, self.b
        surplus = 2 * a - 1
        constant = 1 - a + a * math.log(b) - math.lgamma(a) + 0.5 * surplus * math.log(surplus)
        std = log_std.exp()
        size = torch.hypot(mean, torch.hypot(std, std.new_full((), math.sqrt(2 * b))))
        return surplus * size.log() - log_std - constant, size

    def config(self) -> dict[str, Any]:
        """Shape and rate."""
        return {"a": self.a, "b": self.b}

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        return f"a={self.a}, b={self.b}"
