"""What a prior must be able to say about Gaussian marginals."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.kernels import NormalPrior, differentiated
from bayeslim.log_alpha import SMALLEST_MEAN
from bayeslim.posteriors.base import Posterior

__all__ = ["Prior", "PriorFactory", "log_variance", "of_log_alpha"]


class Prior(nn.Module, ABC):
    """A factorised prior `p(W) = prod_i p(w_i)`, known through its KL from a Gaussian."""

    @abstractmethod
    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """`KL(N(mean, variance) || p)` of every weight, in nats, constants included.

        Never NaN while the mean is finite: infinite where the value exceeds the type's range, as if of the largest
        number where the variance itself did. In float32 at least: `kl_divergence` sees to it.
        """

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """The sum of `kl` over all weights, from the log of the standard deviation; a member may know a better way.

        Better is faster, or exact where the variance would overflow: beyond a standard deviation of 1.8e19 in float32.
        """
        return self.kl(mean, (2 * log_std).exp()).sum()

    def as_normal(self, posterior: Posterior) -> NormalPrior | None:
        """Mean and standard deviation, if the prior is one and the same normal for all weights of such a posterior."""
        return None

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The keyword arguments that rebuild this prior (tensors excepted: they are buffers)."""

    def check(self, posterior: Posterior) -> None:
        """Raise ValueError if the KL would be meaningless for this posterior."""


PriorFactory = Callable[[Tensor], Prior]
"""Builds a prior for an initial weight, e.g. one centred on it."""


def log_variance(variance: Tensor) -> Tensor:
    """`ln variance`, within the type's range so that neither 0 nor a variance that overflowed gives an infinity."""
    limits = torch.finfo(variance.dtype)
    return variance.clamp(limits.tiny, limits.max).log()


def of_log_alpha(
    term: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], mean: Tensor, log_std: Tensor
) -> Tensor:
    """The sum of a KL that depends on `ln alpha = 2 ln(std / |mean|)` alone.

    Args:
        term: the KL of every weight.
        slope: its derivative by `ln alpha`, in a fresh tensor.
        mean: posterior means.
        log_std: logs of the posterior standard deviations.
    """

    def value(mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        la = mean.abs().clamp_min_(SMALLEST_MEAN).log_().neg_().add_(log_std).mul_(2)
        return term(la).sum(), la

    def slopes(mean: Tensor, la: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        by_log_std = slope(la).mul_(2 * g)
        # Divided by infinity, and so 0, where the value does not change.
        by_mean = by_log_std / F.threshold(mean.square(), SMALLEST_MEAN**2, math.inf)
        return by_mean.mul_(mean).neg_(), by_log_std

    return differentiated(value, slopes, mean, log_std)
