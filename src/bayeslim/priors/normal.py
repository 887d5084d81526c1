"""Gaussian priors: fixed, and scaled to the fan-in."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from bayeslim.kernels import NormalPrior, normal_kl_sum
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior, log_variance

__all__ = ["HeNormal", "Normal"]


def normal_kl(mean: Tensor, variance: Tensor, prior_mean: Any, prior_std: Any) -> Tensor:
    r"""`ln(s0 / s) + ((m - m0)^2 + s^2) / (2 s0^2) - 1/2` for q = N(m, s^2), p = N(m0, s0^2)."""
    log_std = prior_std.log() if isinstance(prior_std, Tensor) else math.log(prior_std)
    quadratic = ((mean - prior_mean).square() + variance) / (2 * prior_std**2)
    return log_std - 0.5 * log_variance(variance) + quadratic - 0.5


def _all(value: float | Tensor, test: Callable[[Any], Any]) -> bool:
    return bool(test(value).all()) if isinstance(value, Tensor) else test(value)


class Normal(Prior):
    r"""`p(w) = N(mean, std^2)`.

    `KL = ln(std / s) + ((m - mean)^2 + s^2) / (2 std^2) - 1/2` for a posterior `N(m, s^2)`
    (Graves 2011). `std` is a standard deviation, never a variance.

    Args:
        mean: prior mean; a float, or a tensor in the shape of the weight (kept as a buffer, so it
            is saved with the network).
        std: prior standard deviation; a float or such a tensor.

    Example:
        >>> Normal(0.0, 1.0).kl(torch.zeros(()), torch.ones(())).item()
        0.0
    """

    mean: float | Tensor
    std: float | Tensor

    def __init__(self, mean: float | Tensor = 0.0, std: float | Tensor = 1.0) -> None:
        super().__init__()
        if not _all(std, lambda value: (value > 0) & (value < math.inf)):
            raise ValueError(f"`std` must be positive and finite, got {std}: it is a standard deviation")
        if not _all(mean, lambda value: abs(value) < math.inf):
            raise ValueError(f"`mean` must be finite, got {mean}")
        for name, value in (("mean", mean), ("std", std)):
            if isinstance(value, Tensor):
                self.register_buffer(name, value.detach().clone())
            else:
                setattr(self, name, float(value))

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        return normal_kl(mean, variance, self.mean, self.std)

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """See `Prior.total`."""
        if isinstance(self.mean, Tensor) or isinstance(self.std, Tensor):
            return super().total(mean, log_std)
        return normal_kl_sum(mean, log_std, NormalPrior(self.mean, self.std))

    def as_normal(self, posterior: Posterior) -> NormalPrior | None:
        """See `Prior.as_normal`."""
        return (
            None if isinstance(self.mean, Tensor) or isinstance(self.std, Tensor) else NormalPrior(self.mean, self.std)
        )

    def config(self) -> dict[str, Any]:
        """Mean and standard deviation, where they are floats."""
        pairs = {"mean": self.mean, "std": self.std}
        return {name: value for name, value in pairs.items() if isinstance(value, float)}

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        return ", ".join(f"{name}={value}" for name, value in self.config().items())


class HeNormal(Prior):
    r"""`p(w) = N(0, 2 / fan_in)` for weights, `N(0, 1)` for biases.

    The prior of the k-tied paper's appendix B. `fan_in` is the number of weights that feed one
    output, read off the shape of the weight.

    Example:
        >>> HeNormal().kl(torch.zeros(1, 8), torch.full((1, 8), 0.25)).sum().item()
        0.0
    """

    def kl(self, mean: Tensor, variance: Tensor) -> Tensor:
        """See the class docstring."""
        return normal_kl(mean, variance, *_he(mean))

    def total(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """See `Prior.total`."""
        return normal_kl_sum(mean, log_std, _he(mean))

    def as_normal(self, posterior: Posterior) -> NormalPrior:
        """See `Prior.as_normal`."""
        return _he(posterior.mean())

    def config(self) -> dict[str, Any]:
        """Nothing to configure."""
        return {}


def _he(mean: Tensor) -> NormalPrior:
    return NormalPrior(0.0, math.sqrt(2 / mean.shape[1:].numel()) if mean.ndim > 1 else 1.0)
