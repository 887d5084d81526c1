"""What a prior must be able to say about Gaussian marginals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.posteriors.base import Posterior

__all__ = ["Prior", "PriorFactory", "log_variance"]


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

    def as_normal(self, mean: Tensor) -> tuple[float, float] | None:
        """Mean and standard deviation, if the prior is one and the same normal for all weights of such a tensor."""
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
