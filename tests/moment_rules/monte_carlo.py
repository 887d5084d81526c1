"""Moment rules against draws of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian, Mode
from contracts.statistics import assert_moments, draws

DRAWS = 100_000
Function = Callable[..., Any]


def uncertain(*shape: int, seed: int = 0, scale: float = 1.0, mode: Mode = "exact") -> Any:
    """A float64 `Gaussian` with nothing special about it: standard normal means, deviations around `scale`.

    Annotated as anything, since torch's functions do not know they take one.
    """
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    deviation = scale * (0.5 + torch.rand(shape, generator=generator, dtype=torch.float64))
    return Gaussian(mean, deviation.square(), mode)


def certain(*shape: int, seed: int = 100) -> Tensor:
    return uncertain(*shape, seed=seed).loc


def sampled(function: Function, *inputs: Gaussian | Tensor, count: int = DRAWS, seed: int = 0) -> Tensor:
    """`function` of independent draws of its uncertain inputs: (count, ...)."""

    def once() -> Tensor:
        return function(*(x.rsample() if isinstance(x, Gaussian) else x for x in inputs))

    return draws(once, count, seed)


def moments_of(function: Function, *inputs: Gaussian | Tensor) -> Gaussian:
    """What the rules say, after a look at its form."""
    found = function(*inputs)
    assert isinstance(found, Gaussian)
    assert found.loc.shape == found.variance.shape
    assert found.variance.dtype == found.loc.dtype
    assert found.variance.min().item() >= 0
    return found


def assert_exact(function: Function, *inputs: Gaussian | Tensor) -> None:
    """Mean and variance of every element are within five standard errors."""
    found, samples = moments_of(function, *inputs), sampled(function, *inputs)
    assert samples.shape[1:] == found.shape
    assert_moments(samples, found.loc, found.variance)


def deviation_error(function: Function, *inputs: Gaussian | Tensor, count: int = DRAWS) -> Tensor:
    """Relative error of every element's standard deviation; the draws themselves are off by `1 / sqrt(2 count)`."""
    return moments_of(function, *inputs).scale / sampled(function, *inputs, count=count).std(0) - 1


def assert_states(found: float, stated: float) -> None:
    """An error is what a docstring says: not above, and not so far below that the figure says nothing."""
    assert 0.5 * stated < found <= stated, f"measured {found:.4f}, stated {stated}"
