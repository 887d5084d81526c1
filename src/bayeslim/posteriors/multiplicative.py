"""The Gaussian posterior with multiplicative noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayeslim.kernels import normal_like
from bayeslim.log_alpha import SMALLEST_MEAN
from bayeslim.posteriors.base import (
    Posterior,
    full,
    soft_upper_bound,
    soft_upper_bound_inverse,
)

__all__ = ["Multiplicative"]


class Multiplicative(Posterior):
    r"""`w_i = loc_i (1 + sqrt(alpha_i) noise)`, i.e. `N(loc_i, alpha_i loc_i^2)`.

    Variational dropout as first published (Kingma et al. 2015): a dropout rate `alpha` per weight.
    The gradient of `loc` carries the factor `1 + sqrt(alpha) noise`, which is why the additive
    form trains better for large `alpha`.

    Args:
        init: the initial weight; becomes the mean.
        alpha: initial variance of the multiplicative noise.
        max_alpha: upper bound of `alpha`, approached smoothly. Kingma's polynomial KL holds only
            for `alpha <= 1`; with 1 the parameterisation is `alpha = sigmoid(log_alpha)`.

    Example:
        >>> q = Multiplicative(torch.ones(2, 2), alpha=0.25)
        >>> q.variance()[0, 0].item()
        0.25
    """

    scale_parameters = ("log_alpha",)

    def __init__(self, init: Tensor, alpha: float = 0.1, max_alpha: float = math.inf) -> None:
        if not 0 < alpha < max_alpha:
            raise ValueError(f"`alpha` must be positive and below `max_alpha`={max_alpha}, got {alpha}: pass e.g. 0.1")
        super().__init__()
        self.max_alpha = max_alpha
        raw = soft_upper_bound_inverse(math.log(alpha), math.log(max_alpha))
        self.loc = nn.Parameter(init.detach().clone())
        self.log_alpha = nn.Parameter(torch.full_like(full(self.loc), raw))

    def mean(self) -> Tensor:
        """The parameter `loc`."""
        return self.loc

    def variance(self) -> Tensor:
        """`alpha * loc^2`."""
        return self._bounded_log_alpha().exp() * full(self.loc).square()

    def log_std(self) -> Tensor:
        """`0.5 ln alpha + ln|loc|`, which no square can overflow; as in `log_alpha`, `|loc|` is at least 1e-8."""
        return 0.5 * self._bounded_log_alpha() + full(self.loc).abs().clamp_min(SMALLEST_MEAN).log()

    def rsample(self) -> Tensor:
        """`loc + loc * sqrt(alpha) * noise`."""
        deviation = (0.5 * self._bounded_log_alpha()).exp().to(self.loc.dtype) * self.loc
        return torch.addcmul(self.loc, deviation, normal_like(self.loc))

    def config(self) -> dict[str, float | int | None]:
        """The bound; the rates themselves are parameters."""
        if math.isinf(self.max_alpha):
            return {}
        return {"alpha": 0.5 * self.max_alpha, "max_alpha": self.max_alpha}  # 0.1 may exceed the bound

    def _bounded_log_alpha(self) -> Tensor:
        return soft_upper_bound(full(self.log_alpha), math.log(self.max_alpha))
