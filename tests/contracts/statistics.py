"""Comparisons with a known value whose tolerance is a number of standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

ERRORS = 5.0
"""Standard errors allowed: a false alarm has probability 6e-7 per comparison, and seeds are fixed."""

ROUNDING = 1e-9
"""Allowed on top, for values that do not vary at all (float64)."""


def draws(draw: Callable[[], Tensor], count: int, seed: int) -> Tensor:
    """Call `draw` `count` times with independent noise: (count, *shape)."""
    torch.manual_seed(seed)
    with torch.no_grad():
        return torch.vmap(lambda _: draw(), randomness="different")(torch.zeros(count))


def assert_within(error: Tensor, standard_error: Tensor | float) -> None:
    """Fail where `|error|` exceeds `ERRORS` standard errors, telling by how much."""
    ratio = error.abs() / (ERRORS * torch.as_tensor(standard_error) + ROUNDING)
    worst = ratio.max().item()
    assert worst <= 1, f"off by {ERRORS * worst:.1f} standard errors at {int(ratio.argmax())}"


def assert_mean(samples: Tensor, expected: Tensor) -> None:
    """The mean over the first axis, with the standard error that the samples themselves show."""
    assert_within(samples.mean(0) - expected, samples.std(0) / math.sqrt(len(samples)))


def assert_gaussian_moments(samples: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Mean and variance of Gaussian samples; the fourth moment 3 variance^2 gives the errors."""
    count = len(samples)
    assert_within(samples.mean(0) - mean, (variance / count).sqrt())
    assert_within((samples - mean).square().mean(0) - variance, variance * math.sqrt(2 / count))


def assert_moments(samples: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Mean and variance of samples of any distribution."""
    assert_mean(samples, mean)
    assert_mean((samples - mean).square(), variance)


def assert_covariance(samples: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """All covariances between the elements of a sample; `covariance` is (numel, numel)."""
    centred = (samples - mean).flatten(1)
    count = len(centred)
    products = centred.T @ centred / count
    squares = centred.square().T @ centred.square() / count
    assert_within(products - covariance, ((squares - products.square()) / count).sqrt())
