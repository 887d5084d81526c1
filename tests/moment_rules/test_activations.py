"""Moments of activations against quadrature."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy import integrate, special, stats
from torch import Tensor, nn

from bayeslim import mlp
from bayeslim.estimators import moments
from bayeslim.gaussian import MOMENT_RULES, Gaussian
from bayeslim.models import ACTIVATIONS
from bayeslim.moment_rules.activations import leaky_relu, relu
from contracts.members import over
from contracts.statistics import assert_moments, draws

Function = Callable[..., Any]


def moments_of(function: Function, x: Gaussian, *args: Any, **options: Any) -> Gaussian:
    """Apply a torch function to a Gaussian, which torch's annotations do not know."""
    result = function(x, *args, **options)
    assert isinstance(result, Gaussian)
    return result


SMOOTH: dict[str, tuple[Function, float]] = {
    "tanh": (torch.tanh, 1e-3),
    "sigmoid": (torch.sigmoid, 1e-6),
    "sin": (torch.sin, 1e-9),
    "gelu": (F.gelu, 2e-4),
    "silu": (F.silu, 1e-5),
    "softplus": (F.softplus, 1e-6),
    "elu": (F.elu, 1e-2),
    "selu": (F.selu, 3e-2),
}
"""Functions ruled by 16 nodes, with the relative error of their variance up to a std of 1."""


def tail(z: float) -> tuple[float, float]:
    """Mean and variance of `max(x, 0)` for `x ~ N(z, 1)`, to full relative accuracy for `z < 0`.

    `E[max(x, 0)^k] = int_0^inf t^k N(t; z, 1) dt`, with the density at 0 taken out.
    """
    first, second = (
        integrate.quad(lambda t, k=k: t**k * math.exp(z * t - 0.5 * t * t), 0, math.inf, epsrel=1e-12)[0]
        for k in (1, 2)
    )
    density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return density * first, density * second - (density * first) ** 2


def dense(function: Function, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance by the trapezoidal rule with 40 001 points."""
    z = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    weight = torch.exp(-0.5 * z.square())
    weight = weight / weight.sum()
    values = function(mean[:, None] + std[:, None] * z)
    first = values @ weight
    return first, (values - first[:, None]).square() @ weight


@over("z", [-30.0, -13.0, -10.0, -6.0, -5.0, -3.0, -1.0, 0.0, 0.5, 2.0, 6.0, 13.0, 30.0])
@over("std", [1e-6, 1.0, 1e4])
def test_relu_moments_in_float32_over_all_ranges(z: float, std: float) -> None:
    """Relative errors; below z = -6 the moments are under 1e-10 of the input's and lose digits."""
    value = moments_of(F.relu, Gaussian(torch.tensor(z * std), torch.tensor(std).square()))
    mean, variance = tail(z) if z <= 0 else (0.0, 0.0)
    if z > 0:  # max(x, 0) = x + max(-x, 0)
        lower_mean, lower_variance = tail(-z)
        mean, variance = z + lower_mean, 1 + lower_variance - 2 * stats.norm.cdf(-z)
    error = 2e-3 if z >= -6 else 0.2
    assert bool(value.mean.isfinite() and value.variance.isfinite())
    assert value.mean.item() == pytest.approx(mean * std, rel=error, abs=1e-36)
    assert value.variance.item() == pytest.approx(variance * std**2, rel=error, abs=1e-36)


@over("slope", [0.0, 0.01, 0.3, 1.0])
def test_leaky_relu_moments_in_float64(slope: float) -> None:
    mean = torch.linspace(-5, 5, 21, dtype=torch.float64)
    std = torch.linspace(0.3, 3, 21, dtype=torch.float64)
    value = moments_of(F.leaky_relu, Gaussian(mean, std.square()), slope)
    # Exact raw moments on both half-lines, from the truncated normal.
    z = mean / std
    density, above = (
        torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi),
        torch.from_numpy(special.ndtr(z.numpy())),
    )
    first = mean * above + std * density
    second = (mean**2 + std**2) * above + mean * std * density
    exact_mean = first + slope * (mean - first)
    exact = second + slope**2 * (mean**2 + std**2 - second) - exact_mean**2
    torch.testing.assert_close(value.mean, exact_mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(value.variance, exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("function", [F.relu, F.leaky_relu, torch.relu])
def test_rectifiers_by_monte_carlo(function: Function) -> None:
    x = Gaussian(torch.tensor([-1.0, 0.0, 0.7]).double(), torch.tensor([0.5, 1.0, 2.0]).double())
    expected = moments_of(function, x)
    assert_moments(draws(lambda: function(x.rsample()), 100_000, seed=0), expected.mean, expected.variance)


def test_relu_is_leaky_relu_without_slope_and_slope_one_is_the_identity() -> None:
    x = Gaussian(torch.linspace(-3, 3, 7), torch.linspace(0.1, 2, 7))
    assert torch.equal(relu(x).variance, leaky_relu(x, 0.0).variance)
    torch.testing.assert_close(leaky_relu(x, 1.0).mean, x.mean)
    torch.testing.assert_close(leaky_relu(x, 1.0).variance, x.variance)


def test_rectifiers_without_variance_are_the_function_itself() -> None:
    x = Gaussian(torch.tensor([-2.0, 0.0, 3.0]), torch.zeros(3))
    value = moments_of(F.leaky_relu, x, 0.1)
    torch.testing.assert_close(value.mean, torch.tensor([-0.2, 0.0, 3.0]))
    assert torch.equal(value.variance, torch.zeros(3))


@over("variance", [0.0, 1e-30, 1e-6, 1.0, 1e6])
def test_rectifiers_have_finite_gradients(variance: float) -> None:
    mean = torch.tensor([-1e5, -50.0, -3.0, 0.0, 1e-3, 3.0, 50.0, 1e5], requires_grad=True)
    v = torch.full_like(mean, variance, requires_grad=True)
    value = moments_of(F.relu, Gaussian(mean, v))
    for gradient in torch.autograd.grad((value.mean + value.variance).sum(), (mean, v)):
        assert bool(gradient.isfinite().all())


def test_gradients_of_relu_moments() -> None:
    mean = torch.tensor([-4.0, -0.5, 0.0, 0.3, 5.0], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0], dtype=torch.float64, requires_grad=True)

    def both(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        value = moments_of(F.relu, Gaussian(m, v))
        return value.mean, value.variance

    assert torch.autograd.gradcheck(both, (mean, variance))


@over("std", [0.1, 0.5, 1.0])
@over("name", SMOOTH)
def test_smooth_activations_equal_dense_quadrature(name: str, std: float) -> None:
    """The mean's error is counted in output deviations."""
    function, error = SMOOTH[name]
    mean = torch.linspace(-3, 3, 13, dtype=torch.float64)
    stds = torch.full_like(mean, std)
    expected_mean, expected = dense(function, mean, stds)
    value = moments_of(function, Gaussian(mean, stds.square()))
    assert bool(((value.mean - expected_mean).abs() <= error * expected.sqrt()).all())
    assert bool(((value.variance / expected - 1).abs() <= error).all())


@over("name", SMOOTH)
def test_smooth_activations_without_variance_are_the_function_itself(name: str) -> None:
    function, _ = SMOOTH[name]
    mean = torch.linspace(-3, 3, 7)
    value = moments_of(function, Gaussian(mean, torch.zeros(7)))
    torch.testing.assert_close(value.mean, function(mean), rtol=1e-5, atol=1e-6)
    assert bool((value.variance < 1e-10).all())


def test_options_of_the_function_are_passed_on() -> None:
    x = Gaussian(torch.tensor([0.3]).double(), torch.tensor([0.2]).double())
    cases: list[tuple[Function, dict[str, Any]]] = [
        (F.gelu, {"approximate": "tanh"}),
        (F.softplus, {"beta": 2.0}),
        (F.elu, {"alpha": 0.5}),
    ]
    for function, options in cases:
        value = moments_of(function, x, **options)
        mean, variance = dense(functools.partial(function, **options), x.mean, x.std)
        torch.testing.assert_close(value.mean, mean, rtol=1e-2, atol=0)
        torch.testing.assert_close(value.variance, variance, rtol=1e-2, atol=0)
        plain_mean, _ = dense(function, x.mean, x.std)
        assert not torch.allclose(plain_mean, mean, rtol=1e-5)


@over("name", ACTIVATIONS)
def test_every_activation_of_the_models_passes_a_gaussian(name: str) -> None:
    torch.manual_seed(1)
    model = mlp([3, 4, 4, 2], name, estimator=moments)
    output = model(torch.randn(5, 3))
    assert isinstance(output, Gaussian)
    (output.mean.square() + output.variance).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_function_without_a_rule_is_named() -> None:
    x = Gaussian(torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4))
    cases: list[tuple[Function, str]] = [
        (nn.MaxPool2d(2), "max_pool2d"),
        (nn.Dropout(0.5), "dropout"),
        (nn.BatchNorm2d(1).eval(), "batch_norm"),
        (torch.exp, "exp"),
    ]
    for function, name in cases:
        with pytest.raises(TypeError, match=rf"no moment rule for `\w*{name}\w*`: register one with"):
            function(x)


def test_a_registered_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOMENT_RULES, torch.neg, lambda x: Gaussian(-x.mean, x.variance))
    value = moments_of(torch.neg, Gaussian(torch.ones(2), torch.full((2,), 3.0)))
    assert torch.equal(value.mean, -torch.ones(2))
    assert torch.equal(value.variance, torch.full((2,), 3.0))
