"""A value known by its mean and variance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["MOMENT_RULES", "Gaussian"]

MOMENT_RULES: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What each torch function does to a `Gaussian`; filled by `bayeslim.moment_rules`."""


class Gaussian:
    """A tensor of independent Gaussians: a `mean` and a `variance` of the same shape.

    Deliberately not a Tensor: a torch function without a rule in `MOMENT_RULES` raises a TypeError
    that names it, instead of silently losing the variance.

    Args:
        mean: the means.
        variance: the variances, same shape, not negative.

    Example:
        >>> Gaussian(torch.zeros(3), torch.ones(3)).std
        tensor([1., 1., 1.])
    """

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        if mean.shape != variance.shape:
            raise ValueError(
                f"`mean` and `variance` must have the same shape, got {tuple(mean.shape)} and {tuple(variance.shape)}"
            )
        self.mean, self.variance = mean, variance

    @property
    def std(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    @property
    def shape(self) -> torch.Size:
        """The shape of the mean."""
        return self.mean.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.mean.ndim

    def dim(self) -> int:
        """The number of axes, as torch's modules ask for it."""
        return self.mean.ndim

    def rsample(self) -> Tensor:
        """Draw one value per element, differentiable."""
        std = self.variance.clamp_min(1e-16).sqrt()
        return self.mean + std * torch.randn_like(self.mean)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Gaussian:
        """As `Tensor.flatten`, for mean and variance alike."""
        return Gaussian(self.mean.flatten(start_dim, end_dim), self.variance.flatten(start_dim, end_dim))

    def __repr__(self) -> str:
        return f"Gaussian(shape={tuple(self.shape)})"

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Look `func` up in `MOMENT_RULES`."""
        rule = MOMENT_RULES.get(func)
        if rule is None:
            name = getattr(func, "__name__", repr(func))
            raise TypeError(
                f"no moment rule for `{name}`: register one with "
                f"`bayeslim.gaussian.MOMENT_RULES[torch_function] = rule`, or predict by sampling"
            )
        return rule(*args, **(kwargs or {}))
