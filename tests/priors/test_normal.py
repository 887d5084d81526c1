"""Gaussian priors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import distributions

from bayeslim.layers import Conv2d, ConvTranspose2d, Linear
from bayeslim.posteriors import MeanField
from bayeslim.priors import HeNormal, Normal
from contracts.members import over

MEAN = torch.tensor([[0.0, 0.5, -2.0], [1.0, 3.0, -0.1]], dtype=torch.float64)
STD = torch.tensor([[1.0, 0.1, 2.0], [0.01, 0.7, 30.0]], dtype=torch.float64)


@over("mean", [0.0, -1.5])
@over("std", [1.0, 0.05, 10.0])
def test_equals_torch_distributions(mean: float, std: float) -> None:
    q = distributions.Normal(MEAN, STD)
    p = distributions.Normal(torch.full_like(MEAN, mean), torch.full_like(STD, std))
    value = Normal(mean, std).kl(MEAN, STD.square())
    torch.testing.assert_close(value, distributions.kl_divergence(q, p), rtol=1e-12, atol=1e-12)


def test_a_prior_per_weight() -> None:
    value = Normal(MEAN.flip(0), STD.flip(0)).kl(MEAN, STD.square())
    q, p = distributions.Normal(MEAN, STD), distributions.Normal(MEAN.flip(0), STD.flip(0))
    torch.testing.assert_close(value, distributions.kl_divergence(q, p), rtol=1e-12, atol=1e-12)


def test_gradients_of_the_reference() -> None:
    """`dKL/dm = (m - m0) / s0^2` and `dKL/dv = 0.5 (1 / s0^2 - 1 / v)`."""
    mean, variance = MEAN.clone().requires_grad_(), STD.square().requires_grad_()
    by_mean, by_variance = torch.autograd.grad(Normal(0.3, 2.0).kl(mean, variance).sum(), (mean, variance))
    torch.testing.assert_close(by_mean, (MEAN - 0.3) / 4)
    torch.testing.assert_close(by_variance, 0.5 * (0.25 - STD.pow(-2)))


def test_tensors_are_saved_with_the_network() -> None:
    prior = Normal(MEAN, STD)
    assert set(prior.state_dict()) == {"mean", "std"}
    assert prior.config() == {}
    other = Normal(torch.zeros_like(MEAN), torch.ones_like(STD))
    other.load_state_dict(prior.state_dict())
    assert torch.equal(other.kl(MEAN, STD.square()), prior.kl(MEAN, STD.square()))
    assert Normal(0.0, 2.0).config() == {"mean": 0.0, "std": 2.0}
    assert repr(Normal(0.0, 2.0)) == "Normal(mean=0.0, std=2.0)"


def test_tensors_given_are_copied() -> None:
    mean = MEAN.clone()
    prior = Normal(mean, 1.0)
    mean.zero_()
    assert torch.equal(torch.as_tensor(prior.mean), MEAN)


@over("std", [0.0, -1.0, math.nan, torch.tensor([1.0, 0.0])])
def test_deviations_that_are_not_positive_are_refused(std: float | torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"`std` must be positive and finite, got .*it is a standard deviation"):
        Normal(0.0, std)


@over("mean", [math.inf, math.nan, torch.tensor([0.0, -math.inf])])
def test_means_that_are_not_finite_are_refused(mean: float | torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"`mean` must be finite, got"):
        Normal(mean, 1.0)


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (Linear(6, 3, prior=HeNormal()), 6),
        (Conv2d(4, 3, (3, 2), prior=HeNormal()), 4 * 3 * 2),
        (Conv2d(4, 6, (3, 2), groups=2, prior=HeNormal()), 2 * 3 * 2),
        (ConvTranspose2d(4, 6, 3, groups=2, prior=HeNormal()), 2 * 3 * 3),
    ],
    ids=["linear", "conv", "groups", "transposed"],
)
def test_he_normal_reads_the_fan_in_off_the_weight(layer: Linear | Conv2d, fan_in: int) -> None:
    expected = Normal(0.0, math.sqrt(2 / fan_in)).kl(layer.weight.mean(), layer.weight.variance()).sum()
    torch.testing.assert_close(layer.kl(), expected)


def test_he_normal_is_standard_for_a_bias() -> None:
    torch.manual_seed(0)
    layer = Linear(6, 3, prior=HeNormal(), bias_posterior=MeanField)
    assert isinstance(layer.bias, MeanField)
    weight = Normal(0.0, math.sqrt(2 / 6)).kl(layer.weight.mean(), layer.weight.variance()).sum()
    bias = Normal(0.0, 1.0).kl(layer.bias.mean(), layer.bias.variance()).sum()
    torch.testing.assert_close(layer.kl(), weight + bias)
