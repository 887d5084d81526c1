"""Automatic relevance determination against the minimisation it stands for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import optimize
from torch import Tensor, distributions

from bayeslim.priors import ARD, GammaARD, LogUniform
from contracts.cases import each
from contracts.members import log_alpha_grid, over

POINTS = [(0.7, 0.2), (-0.01, 0.3), (2.0, 2.0), (0.0, 0.5), (1e-3, 1e-5)]
HYPERPRIORS = [(0.51, 1e-8), (0.6, 1e-4), (1.0, 0.1), (2.5, 3.0)]


def marginal(mean: float, std: float) -> tuple[Tensor, Tensor]:
    return torch.tensor(mean).double(), torch.tensor(std).double().square()


def objective(mean: float, std: float, a: float = 1.0, b: float = 0.0) -> tuple[float, float]:
    """Minimum over `ln tau` of `KL(q || N(0, 1/tau)) - ln Gamma(tau; a, b)`, and the best `tau`."""
    m, v = marginal(mean, std)
    q = distributions.Normal(m, v.sqrt())

    def loss(log_tau: float) -> float:
        tau = torch.tensor(log_tau, dtype=torch.float64).exp()
        value = distributions.kl_divergence(q, distributions.Normal(0.0, tau.rsqrt()))
        if b > 0:
            value = value - distributions.Gamma(torch.tensor(a).double(), b).log_prob(tau)
        return value.item()

    found: Any = optimize.minimize_scalar(loss, bounds=(-40, 40), method="bounded", options={"xatol": 1e-9})
    return float(found.fun), math.exp(float(found.x))


@pytest.mark.parametrize(("mean", "std"), POINTS)
def test_ard_is_the_kl_at_the_best_precision(mean: float, std: float) -> None:
    value, tau = objective(mean, std)
    assert ARD().kl(*marginal(mean, std)).item() == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert tau == pytest.approx(1 / (mean**2 + std**2), rel=1e-3)


def test_ard_oracles() -> None:
    assert ARD().kl(*marginal(0.4, 0.4)).item() == pytest.approx(0.5 * math.log(2))
    assert ARD().kl(*marginal(0.0, 1.0)).item() == pytest.approx(0, abs=1e-15)
    mean, variance = log_alpha_grid()
    direct = 0.5 * (1 + mean.square() / variance).log()
    torch.testing.assert_close(ARD().kl(mean, variance), direct, rtol=1e-10, atol=1e-14)


def test_ard_falls_with_alpha_and_bounds_the_log_uniform_from_below() -> None:
    mean, variance = log_alpha_grid()
    ard, log_uniform = ARD().kl(mean, variance), LogUniform().kl(mean, variance)
    assert bool((ard.diff() < 0).all())
    assert bool((log_uniform >= ard).all())
    assert bool((log_uniform - ard <= 0.63576).all())


@each(("a", "b"), HYPERPRIORS)
@each(("mean", "std"), POINTS)
def test_gamma_is_the_objective_at_the_best_precision(mean: float, std: float, a: float, b: float) -> None:
    """`torch.tensor(a).double()` rounds `a` to float32; the prior is built with the same number."""
    rounded = float(torch.tensor(a))
    value, tau = objective(mean, std, a, b)
    assert GammaARD(rounded, b).kl(*marginal(mean, std)).item() == pytest.approx(value, rel=1e-6, abs=1e-7)
    second = float(torch.tensor(mean)) ** 2 + float(torch.tensor(std)) ** 2
    assert tau == pytest.approx((2 * rounded - 1) / (second + 2 * b), rel=1e-3)


@over("a", [0.51, 0.75, 2.0])
def test_gamma_oracle_without_mean_and_rate(a: float) -> None:
    """`-kl = (1 - a) ln variance + C` for mean 0 and `b -> 0`."""
    b = 1e-30
    constant = 1 - a + a * math.log(b) - math.lgamma(a) + 0.5 * (2 * a - 1) * math.log(2 * a - 1)
    for std in (0.01, 1.0):
        expected = -((1 - a) * math.log(float(torch.tensor(std)) ** 2) + constant)
        assert GammaARD(a, b).kl(*marginal(0.0, std)).item() == pytest.approx(expected, rel=1e-9)


def test_gamma_with_a_flat_hyperprior_is_ard_up_to_a_constant() -> None:
    mean, variance = log_alpha_grid(-8, 4, 25)
    difference = GammaARD(1.0, 1e-30).kl(mean, variance) - ARD().kl(mean, variance)
    torch.testing.assert_close(difference, difference[:1].expand_as(difference), rtol=1e-9, atol=0)


def test_gamma_rewards_noise_below_a_shape_of_one() -> None:
    """The reason why scales must be bounded there."""
    variance = torch.logspace(-8, 8, 50, dtype=torch.float64)
    value = GammaARD(0.51, 1e-8).kl(torch.full_like(variance, 0.1), variance)
    assert bool((value.diff() < 0).all())


@over("a", [0.5, 0.0, math.nan, math.inf])
def test_shapes_that_make_no_sense_are_refused(a: float) -> None:
    with pytest.raises(ValueError, match=r"`a` must lie in \(0.5, inf\), got .*pass e\.g\. 0\.51"):
        GammaARD(a=a)


@over("b", [0.0, -1.0, math.nan, math.inf])
def test_rates_that_make_no_sense_are_refused(b: float) -> None:
    with pytest.raises(ValueError, match=r"`b` must be positive, got .*pass e\.g\. 1e-8"):
        GammaARD(b=b)
