"""Masks: posteriors some of whose weights are pruned."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels import Facts
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior

__all__ = ["Masked", "mask_of", "unmasked"]


class Masked(Posterior):
    """A factorised posterior with some weights fixed at exactly zero, mean and variance alike.

    The posterior inside keeps its parameters, so an optimiser that holds them goes on working and `unprune_` can
    restore the weights. Pruned weights take no part in the KL and get no gradient.

    Args:
        posterior: the posterior to mask; must be factorised.
        mask: 1 where a weight stays, 0 where it is pruned, in the shape of the weight.

    Example:
        >>> q = Masked(MeanField(torch.ones(2, 2)), torch.eye(2))
        >>> q.mean()
        tensor([[1., 0.],
                [0., 1.]])
    """

    scale_parameters = ()
    mask: Tensor

    def __init__(self, posterior: Posterior, mask: Tensor) -> None:
        if not posterior.factorised:
            raise TypeError(
                f"only a factorised posterior can be pruned weight by weight, got {type(posterior).__name__}: its "
                "weights are correlated"
            )
        if mask.shape != posterior.mean().shape:
            raise ValueError(
                f"`mask` must have the shape of the weight {tuple(posterior.mean().shape)}, got {tuple(mask.shape)}"
            )
        super().__init__()
        self.posterior = posterior
        self.max_alpha, self.used_at = posterior.max_alpha, posterior.used_at
        self.register_buffer("mask", mask.detach().to(posterior.mean().dtype, copy=True))

    def mean(self) -> Tensor:
        """The mean, zero where pruned."""
        return self.posterior.mean() * self.mask

    def variance(self) -> Tensor:
        """The variance, zero where pruned."""
        return self.posterior.variance().masked_fill(self.mask == 0, 0)  # of a huge scale it may be infinite

    def log_std(self) -> Tensor:
        """The log of the standard deviations; where pruned, of the smallest number whose log is finite."""
        log_std = self.posterior.log_std()
        return log_std.masked_fill(self.mask == 0, 0.5 * math.log(torch.finfo(log_std.dtype).tiny))

    def rsample(self) -> Tensor:
        """A draw, zero where pruned."""
        return self.posterior.rsample() * self.mask

    def facts(self) -> Facts:
        """Those of the posterior inside, with the mask."""
        inside = self.posterior.facts()
        return inside if inside.unknown else inside._replace(mask=self.mask)

    def output_variance(self, op: Op, x: Tensor) -> Tensor:
        """Without the share of pruned weights, which is taken off where the posterior inside has a way of its own."""
        if type(self.posterior).output_variance is Posterior.output_variance or not self.posterior.facts().unknown:
            return super().output_variance(op, x)
        pruned = self.posterior.variance() * (1 - self.mask)
        return (self.posterior.output_variance(op, x) - op(op.squared(x), pruned)).clamp_min(0)

    def kept(self) -> Tensor:
        """The mask."""
        return self.mask

    def config(self) -> dict[str, Any]:
        """The arguments of the posterior inside."""
        return self.posterior.config()


def unmasked(posterior: Posterior) -> Posterior:
    """The posterior inside a mask, or the posterior itself."""
    return posterior.posterior if isinstance(posterior, Masked) else posterior


def mask_of(posterior: Posterior) -> Tensor:
    """The mask of a posterior; ones if nothing is pruned."""
    kept = posterior.kept()
    return torch.ones_like(posterior.mean()) if kept is None else kept
