"""The log-uniform prior against its exact KL."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import special
from torch import Tensor

from bayeslim.layers import Linear
from bayeslim.log_alpha import log_alpha
from bayeslim.posteriors import MeanField, Multiplicative
from bayeslim.priors import ARD, LogUniform
from contracts.members import KINGMA_VALID, POSTERIORS, log_alpha_grid, over
from contracts.oracles import LOG_UNIFORM_LIMIT, expectation, log_uniform_kl

TABLE = [  # ln alpha, exact, Molchanov's fit, ARD
    (-10.0, 5.63516, 5.63578, 5.00002),
    (-5.0, 3.13178, 3.13668, 2.50336),
    (-2.0, 1.54415, 1.54053, 1.06346),
    (0.0, 0.42669, 0.43124, 0.34657),
    (3.0, 0.02469, 0.02542, 0.02429),
    (8.0, 0.00017, 0.00017, 0.00017),
]


def at(ln_alpha: float) -> tuple[Tensor, Tensor]:
    return log_alpha_grid(ln_alpha, ln_alpha, 1)


def exact(mean: Tensor, variance: Tensor) -> Tensor:
    return torch.tensor([log_uniform_kl(value) for value in log_alpha(mean, variance).tolist()]).double()


@over("ln_alpha", [-4.0, -1.0, 0.0, 2.0])
def test_the_exact_series_is_the_integral(ln_alpha: float) -> None:
    """`-H(q) + E ln|w|` up to the constant that makes it vanish for `alpha -> inf`."""
    std = math.exp(0.5 * ln_alpha)
    entropy = 0.5 * math.log(2 * math.pi * math.e * std**2)
    constant = 0.5 * math.log(2 * math.pi * math.e) + LOG_UNIFORM_LIMIT
    integral = expectation(lambda w: math.log(abs(w)), 1.0, std, [0.0])
    assert log_uniform_kl(ln_alpha) == pytest.approx(integral - entropy + constant, abs=1e-9)


@over("ln_alpha", [-8.0, -1.0, 0.0, 5.0])
def test_the_exact_series_has_the_known_slope(ln_alpha: float) -> None:
    root = math.sqrt(0.5 * math.exp(-ln_alpha))
    step = 1e-4
    slope = (log_uniform_kl(ln_alpha + step) - log_uniform_kl(ln_alpha - step)) / (2 * step)
    assert slope == pytest.approx(-root * float(special.dawsn(root)), abs=1e-6)


@pytest.mark.parametrize(("ln_alpha", "series", "fit", "ard"), TABLE)
def test_table_of_the_reference(ln_alpha: float, series: float, fit: float, ard: float) -> None:
    half_digit = 0.51e-5
    assert log_uniform_kl(ln_alpha) == pytest.approx(series, abs=half_digit)
    assert LogUniform().kl(*at(ln_alpha)).item() == pytest.approx(fit, abs=half_digit)
    assert ARD().kl(*at(ln_alpha)).item() == pytest.approx(ard, abs=half_digit)


def test_molchanov_fit_is_within_its_stated_error() -> None:
    mean, variance = log_alpha_grid(-10, 10, 401)
    error = (LogUniform().kl(mean, variance) - exact(mean, variance)).abs().max().item()
    assert 0.009 < error < 0.0094 + 5e-5  # the bound is stated to two digits


def test_kingma_fit_is_within_its_stated_error_below_one() -> None:
    mean, variance = log_alpha_grid(-10, 0, 201)
    error = (LogUniform(fit="kingma").kl(mean, variance) - exact(mean, variance)).abs().max().item()
    assert 0.02 < error < 0.0205


@pytest.mark.parametrize(("fit", "stop"), [("molchanov", 10.0), ("kingma", 0.0)])
def test_noisier_weights_are_cheaper(fit: str, stop: float) -> None:
    prior = LogUniform(fit=fit)  # pyright: ignore[reportArgumentType]
    value = prior.kl(*log_alpha_grid(-10, stop))
    assert bool((value.diff() < 0).all())


def test_limits() -> None:
    """0 for pure noise; `-0.5 ln alpha` plus the fit's own constant for no noise."""
    assert LogUniform().kl(*at(60.0)).item() == pytest.approx(0, abs=1e-12)
    assert LogUniform().kl(*at(-40.0)).item() == pytest.approx(20 + 0.63576, abs=1e-9)
    assert pytest.approx(0.63576, abs=6e-4) == LOG_UNIFORM_LIMIT


def test_the_scale_of_a_weight_does_not_matter() -> None:
    mean, variance = log_alpha_grid(-6, 6, 7)
    for factor in (1e-3, -20.0):
        scaled = LogUniform().kl(factor * mean, factor**2 * variance)
        torch.testing.assert_close(scaled, LogUniform().kl(mean, variance))


@over("name", POSTERIORS)
def test_kingma_needs_a_bounded_alpha(name: str) -> None:
    prior, posterior = LogUniform(fit="kingma"), POSTERIORS[name](torch.ones(4, 4))
    LogUniform().check(posterior)
    if name in KINGMA_VALID:
        prior.check(posterior)
        return
    message = rf"{type(posterior).__name__} allows alpha up to inf: use Multiplicative\(max_alpha=1\.0\)"
    with pytest.raises(ValueError, match=message):
        prior.check(posterior)


def test_kingma_needs_a_bound_of_one_exactly() -> None:
    LogUniform(fit="kingma").check(Multiplicative(torch.ones(2), max_alpha=1.0))
    with pytest.raises(ValueError, match=r"Multiplicative allows alpha up to 1\.01"):
        LogUniform(fit="kingma").check(Multiplicative(torch.ones(2), max_alpha=1.01))


def test_kingma_refuses_an_unbounded_bias_as_well() -> None:
    def bounded(init: Tensor) -> Multiplicative:
        return Multiplicative(init, max_alpha=1.0)

    prior = LogUniform(fit="kingma")
    with pytest.raises(ValueError, match=r"MeanField allows alpha up to inf"):
        Linear(3, 2, posterior=bounded, prior=prior, bias_posterior=MeanField)
    Linear(3, 2, posterior=bounded, prior=prior, bias_posterior=MeanField, bias_prior=ARD())


def test_an_unknown_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`fit` must be 'molchanov' or 'kingma', got 'cubic'"):
        LogUniform(fit="cubic")  # pyright: ignore[reportArgumentType]


def test_log_alpha_is_the_log_of_variance_over_squared_mean() -> None:
    mean = torch.tensor([1.0, 0.1, -3.0, 2.0], dtype=torch.float64)
    variance = torch.tensor([1.0, 1.0, 0.5, 1e-8], dtype=torch.float64)
    torch.testing.assert_close(log_alpha(mean, variance), (variance / mean.square()).log())


def test_log_alpha_of_16_bit_means_has_the_digits_of_the_variance() -> None:
    """A variance of 1e-6 is below the smallest normal number of float16."""
    for dtype in (torch.float16, torch.bfloat16):
        mean, variance = torch.tensor(0.375, dtype=dtype), torch.tensor(1e-6)
        assert log_alpha(mean, variance).item() == pytest.approx(math.log(1e-6 / 0.375**2), rel=1e-6)


def test_log_alpha_is_finite_with_finite_gradients_everywhere() -> None:
    mean = torch.tensor([0.0, 0.0, 1e-30, 1e30, -1e-30, 5.0], requires_grad=True)
    variance = torch.tensor([0.0, 1.0, 1e-38, 1e38, 1e38, 0.0], requires_grad=True)
    value = log_alpha(mean, variance)
    assert bool(value.isfinite().all())
    for gradient in torch.autograd.grad(value.sum(), (mean, variance)):
        assert bool(gradient.isfinite().all())
    assert log_alpha(torch.zeros(1), torch.ones(1)).item() == pytest.approx(36.8414, abs=1e-3)
