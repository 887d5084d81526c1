"""The KL from a normal prior, summed over all weights, and its gradient: both are written here alone.

For `q = N(loc, std^2)` and `p = N(m, s^2)`, `KL = ((loc - m)^2 + std^2) / (2 s^2) - ln std + ln s - 1/2`, with the
slopes `(loc - m) / s^2` by `loc` and `std^2 / s^2 - 1` by `ln std`.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from bayeslim.kernels.closed_form import differentiated
from bayeslim.kernels.context import NormalPrior, now

__all__ = ["add_slopes_", "distance", "kl_of_sums", "normal_kl_sum"]


def kl_of_sums(squares: Any, variances: Any, logs: Any, count: Any, prior: NormalPrior) -> Any:
    """The KL from the sums of `(loc - m)^2`, of variances and of log standard deviations over `count` weights.

    All are tensors or floats; with `count` 1 they may be those of each weight.
    """
    return 0.5 * prior.std**-2 * (squares + variances) - logs + count * (math.log(prior.std) - 0.5)


def normal_kl_sum(loc: Tensor, log_std: Tensor, prior: NormalPrior, mask: Tensor | None = None) -> Tensor:
    """The KL of all weights, or of those where `mask` is 1 and not 0.

    Example:
        >>> normal_kl_sum(torch.zeros(2, 3), torch.zeros(2, 3), NormalPrior(0.0, 1.0))
        tensor(0.)
    """

    def value(loc: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        variance = log_std.exp().square()
        if mask is not None or now(loc).compiling:  # term by term: one loop, which a compiler joins to others
            terms = kl_of_sums(distance(loc, prior).square(), variance, log_std, 1, prior)
            return (terms if mask is None else terms * mask).sum(), variance
        return kl_of_sums(
            distance(loc, prior).square().sum(), variance.sum(), log_std.sum(), loc.numel(), prior
        ), variance

    def by_both(loc: Tensor, variance: Tensor, by_kl: Tensor) -> tuple[Tensor, Tensor]:
        by_loc = distance(loc, prior) * (by_kl * prior.std**-2)
        by_log_std = (variance * (by_kl * prior.std**-2)).sub_(by_kl)
        return (by_loc, by_log_std) if mask is None else (by_loc * mask, by_log_std * mask)

    return differentiated(value, by_both, loc, log_std)


def add_slopes_(
    by_loc: Tensor, by_log_std: Tensor, loc: Tensor, factor: Tensor, rest: Any, prior: NormalPrior, by_kl: float
) -> None:
    """Add the gradient of the KL to that of everything else, in place.

    Args:
        by_loc: the gradient by the means.
        by_log_std: that by the logs of the standard deviations, divided by `factor`; leaves multiplied.
        loc: means.
        factor: standard deviations, or variances.
        rest: the variance divided by `factor`: a tensor, or 1.
        prior: the prior.
        by_kl: the gradient by the KL.
    """
    pull = by_kl * prior.std**-2
    by_loc.add_(distance(loc, prior), alpha=pull)
    by_log_std.add_(rest, alpha=pull)
    by_log_std.mul_(factor).sub_(by_kl)


def distance(loc: Tensor, prior: NormalPrior) -> Tensor:
    """From the prior's mean, without a copy where that is 0."""
    return loc - prior.mean if prior.mean else loc
