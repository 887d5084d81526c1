"""The spike-and-slab mixture and its quadrature."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayeslim.priors import Normal, ScaleMixture
from bayeslim.priors.quadrature import legendre_rule, local_expectation
from contracts.cases import each


def bump(w: Tensor) -> tuple[Tensor, Tensor]:
    """`exp(-w^2 / 2)` and its derivative: its Gaussian expectation is known."""
    value = (-0.5 * w.square()).exp()
    return value, -w * value


@each("std", [1e-12, 1e-3, 0.5, 3.0, 1e3])
@each("mean", [0.0, 0.6, -4.0])
@each("dtype", [torch.float32, torch.float64])
def test_expectation_of_a_gaussian_bump(mean: float, std: float, dtype: torch.dtype) -> None:
    m, log_std = torch.tensor(mean, dtype=dtype), torch.tensor(std, dtype=dtype).log()
    value = local_expectation(bump, 9.0, m, log_std, legendre_rule(60))
    expected = math.exp(-0.5 * mean**2 / (1 + std**2)) / math.sqrt(1 + std**2)
    error = {torch.float32: 1e-5, torch.float64: 1e-9}[dtype]
    assert value.item() == pytest.approx(expected, rel=error)


def test_gradients_of_a_gaussian_bump() -> None:
    mean = torch.tensor([0.0, 0.6, -2.0], dtype=torch.float64, requires_grad=True)
    log_std = torch.tensor([-0.6, -7.0, 0.7], dtype=torch.float64, requires_grad=True)
    value = local_expectation(bump, 9.0, mean, log_std, legendre_rule(60))
    variance = (2 * log_std).exp()
    exact = (-0.5 * mean.square() / (1 + variance)).exp() * (1 + variance).rsqrt()
    ours = torch.autograd.grad(value.sum(), (mean, log_std))
    torch.testing.assert_close(ours, torch.autograd.grad(exact.sum(), (mean, log_std)), rtol=1e-8, atol=1e-10)


def test_almost_equal_components_are_one_normal() -> None:
    mean, variance = torch.tensor([0.3, -1.0]), torch.tensor([0.01, 0.5])
    value = ScaleMixture(pi=0.3, wide=0.5, narrow=0.4999).kl(mean, variance)
    torch.testing.assert_close(value, Normal(0.0, 0.5).kl(mean, variance), rtol=0, atol=1e-3)


def test_weights_far_from_the_spike_see_the_wide_component() -> None:
    """`p = pi N(0, wide^2)` there: the tails are regularised in full."""
    mean, variance = torch.tensor([0.5, -3.0, 30.0]), torch.full((3,), 1e-4)
    value = ScaleMixture(pi=0.25).kl(mean, variance)
    torch.testing.assert_close(value, Normal().kl(mean, variance) - math.log(0.25))


def test_narrow_posteriors_in_the_spike_are_cheaper() -> None:
    prior = ScaleMixture()
    inside = prior.kl(torch.zeros(()), torch.tensor(math.exp(-12.0)))
    outside = prior.kl(torch.tensor(0.1), torch.tensor(math.exp(-12.0)))
    assert inside.item() < 1.0 < outside.item()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pi": 0.0}, r"`pi` must lie between 0 and 1, got 0\.0"),
        ({"pi": 1.0}, r"`pi` must lie between 0 and 1, got 1\.0"),
        ({"narrow": 2.0}, r"must satisfy 0 < narrow < wide, got 2\.0 and 1\.0"),
        ({"narrow": 0.0}, r"must satisfy 0 < narrow < wide, got 0\.0 and 1\.0"),
        ({"wide": math.inf}, r"must satisfy 0 < narrow < wide, got .* and inf"),
        ({"nodes": 0}, r"`nodes` must be at least 1, got 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScaleMixture(**options)  # pyright: ignore[reportArgumentType]
