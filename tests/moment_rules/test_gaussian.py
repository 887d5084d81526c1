"""The pair of mean and variance."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeslim.gaussian import Gaussian
from contracts.statistics import assert_gaussian_moments, draws


def pair(*shape: int) -> Gaussian:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Gaussian(mean, torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1)


def test_draws_have_the_stated_moments() -> None:
    x = pair(3, 2)
    assert_gaussian_moments(draws(x.rsample, 20_000, seed=1), x.mean, x.variance)


def test_draws_are_differentiable_also_without_variance() -> None:
    mean, variance = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    gradients = torch.autograd.grad(Gaussian(mean, variance).rsample().sum(), (mean, variance))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_shape_std_and_repr() -> None:
    x = pair(3, 2)
    assert x.shape == (3, 2)
    assert x.ndim == 2
    torch.testing.assert_close(x.std.square(), x.variance)
    assert repr(x) == "Gaussian(shape=(3, 2))"
    assert not isinstance(x, torch.Tensor)


def test_flatten_acts_on_both() -> None:
    x = pair(2, 3, 4)
    flat = nn.Flatten()(x)
    assert torch.equal(flat.mean, x.mean.flatten(1))
    assert torch.equal(flat.variance, x.variance.flatten(1))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"must have the same shape, got \(2,\) and \(3,\)"):
        Gaussian(torch.zeros(2), torch.ones(3))
