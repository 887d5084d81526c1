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
from bayeslim.moment_rules import table
from bayeslim.moment_rules.activations import leaky_relu, relu
from contracts.cases import each
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
    "cos": (torch.cos, 1e-9),
    "erf": (torch.erf, 2e-3),
    "gelu": (F.gelu, 2e-4),
    "silu": (F.silu, 1e-5),
    "mish": (F.mish, 1e-4),
    "softplus": (F.softplus, 1e-6),
    "logsigmoid": (F.logsigmoid, 1e-6),
    "tanhshrink": (F.tanhshrink, 1e-3),
}
"""Smooth functions ruled by 16 nodes, with the relative error of their variance up to a std of 1."""

KINKED: dict[str, Function] = {
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softsign": F.softsign,
    "hardswish": F.hardswish,
}
QUADRATURE = {name: function for name, (function, _) in SMOOTH.items()} | KINKED


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


@each("z", [-30.0, -13.0, -10.0, -6.0, -5.0, -3.0, -1.0, 0.0, 0.5, 2.0, 6.0, 13.0, 30.0])
@each("std", [1e-6, 1.0, 1e4])
def test_relu_moments_in_float32_over_all_ranges(z: float, std: float) -> None:
    """Errors are counted in the input's own deviation and variance."""
    value = moments_of(F.relu, Gaussian(torch.tensor(z * std), torch.tensor(std).square()))
    mean, variance = tail(z) if z <= 0 else (0.0, 0.0)
    if z > 0:  # max(x, 0) = x + max(-x, 0)
        lower_mean, lower_variance = tail(-z)
        mean, variance = z + lower_mean, 1 + lower_variance - 2 * stats.norm.cdf(-z)
    assert value.loc.item() >= 0 and value.variance.item() >= 0
    assert value.loc.item() == pytest.approx(mean * std, rel=1e-6, abs=2e-6 * std)
    assert value.variance.item() == pytest.approx(variance * std**2, rel=1e-6, abs=3e-6 * std**2)


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
    torch.testing.assert_close(value.loc, exact_mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(value.variance, exact, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("function", [F.relu, F.leaky_relu, torch.relu])
def test_rectifiers_by_monte_carlo(function: Function) -> None:
    x = Gaussian(torch.tensor([-1.0, 0.0, 0.7]).double(), torch.tensor([0.5, 1.0, 2.0]).double())
    expected = moments_of(function, x)
    assert_moments(draws(lambda: function(x.rsample()), 100_000, seed=0), expected.loc, expected.variance)


def test_relu_is_leaky_relu_without_slope_and_slope_one_is_the_identity() -> None:
    x = Gaussian(torch.linspace(-3, 3, 7), torch.linspace(0.1, 2, 7))
    assert torch.equal(relu(x).variance, leaky_relu(x, 0.0).variance)
    torch.testing.assert_close(leaky_relu(x, 1.0).loc, x.loc)
    torch.testing.assert_close(leaky_relu(x, 1.0).variance, x.variance)


def test_rectifiers_without_variance_are_the_function_itself() -> None:
    x = Gaussian(torch.tensor([-2.0, 0.0, 3.0]), torch.zeros(3))
    value = moments_of(F.leaky_relu, x, 0.1)
    torch.testing.assert_close(value.loc, torch.tensor([-0.2, 0.0, 3.0]))
    assert torch.equal(value.variance, torch.zeros(3))


@over("slope", [0.0, 0.1])
@over("variance", [0.0, 1e-30, 1e-6, 1.0, 1e6])
def test_rectifiers_have_finite_values_and_gradients(variance: float, slope: float) -> None:
    mean = torch.tensor([-1e5, -50.0, -3.0, 0.0, 1e-3, 3.0, 50.0, 1e5], requires_grad=True)
    v = torch.full_like(mean, variance, requires_grad=True)
    value = moments_of(F.leaky_relu, Gaussian(mean, v), slope)
    assert bool(value.loc.isfinite().all()) and bool((value.variance >= 0).all())
    plain = F.leaky_relu(mean, slope)
    assert bool(((value.loc - plain).abs() <= max(variance, 1e-30) ** 0.5 + 1e-6 * plain.abs()).all())
    assert (value.variance / max(variance, 1e-30)).max().item() < 1 + 1e-6
    for gradient in torch.autograd.grad((value.loc + value.variance).sum(), (mean, v)):
        assert bool(gradient.isfinite().all())


@over("slope", [0.0, 0.1])
def test_gradients_of_rectifier_moments(slope: float) -> None:
    mean = torch.tensor([-4.0, -0.5, 0.0, 0.3, 5.0], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0], dtype=torch.float64, requires_grad=True)

    def both(m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        value = moments_of(F.leaky_relu, Gaussian(m, v), slope)
        return value.loc, value.variance

    assert torch.autograd.gradcheck(both, (mean, variance))


def test_gradients_of_rectifier_moments_cannot_be_differentiated_again() -> None:
    mean = torch.ones(2, requires_grad=True)
    value = moments_of(F.relu, Gaussian(mean, torch.ones(2)))
    (gradient,) = torch.autograd.grad(value.loc.square().sum(), mean, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@over("slope", [0.0, 0.1, 0.5])
def test_float32_errors_of_rectifiers_are_the_stated_ones(slope: float) -> None:
    """Below 2e-6 of the input's deviation and 5e-6 of its variance, on a dense grid."""
    z = torch.linspace(-12, 12, 100_001)
    value = moments_of(F.leaky_relu, Gaussian(z, torch.ones_like(z)), slope)
    z = z.double()
    above, density = torch.special.ndtr(z), torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    first, second = z * above + density, (z.square() + 1) * above + z * density
    mean = first + slope * (z - first)
    variance = second + slope**2 * (z.square() + 1 - second) - mean.square()
    assert (value.loc.double() - mean).abs().max().item() < 2e-6
    assert (value.variance.double() - variance).abs().max().item() < 5e-6


FIRST_ORDER: dict[str, Function] = QUADRATURE | {
    "relu": F.relu,
    "torch-relu": torch.relu,
    "leaky": F.leaky_relu,
    "exp": torch.exp,
    "square": torch.square,
}


@each("name", FIRST_ORDER)
@each("dtype", [torch.float64, torch.float16])
def test_first_order_by_autograd(name: str, dtype: torch.dtype) -> None:
    """`f(m)` and `f'(m)^2 v`, in the type of the input."""
    function = FIRST_ORDER[name]
    mean = torch.linspace(-2.6, 2.9, 11).to(dtype).requires_grad_()
    variance = torch.linspace(0.1, 2.0, 11).to(dtype)
    value = moments_of(function, Gaussian(mean, variance, "taylor"))
    expected = function(mean)
    (slope,) = torch.autograd.grad(expected.sum(), mean)
    tolerance: dict[str, Any] = (
        {"rtol": 1e-12, "atol": 1e-14} if dtype == torch.float64 else {"rtol": 5e-3, "atol": 1e-3}
    )
    torch.testing.assert_close(value.loc, expected, **tolerance)
    torch.testing.assert_close(value.variance, slope.square() * variance, **tolerance)
    assert value.mode == "taylor"


def test_first_order_relu_keeps_the_variance_where_the_mean_is_positive() -> None:
    value = moments_of(F.relu, Gaussian(torch.tensor([-1.0, 0.0, 2.0]), torch.full((3,), 0.7), "taylor"))
    assert torch.equal(value.loc, torch.tensor([0.0, 0.0, 2.0]))
    assert torch.equal(value.variance, torch.tensor([0.0, 0.0, 0.7]))


def test_exp_is_log_normal() -> None:
    x = Gaussian(torch.tensor([-1.0, 0.0, 0.7]).double(), torch.tensor([0.1, 0.3, 0.2]).double())
    expected = moments_of(torch.exp, x)
    reference = stats.lognorm(s=x.scale.numpy(), scale=x.loc.exp().numpy())
    torch.testing.assert_close(expected.loc, torch.from_numpy(reference.mean()))
    torch.testing.assert_close(expected.variance, torch.from_numpy(reference.var()))
    assert_moments(draws(lambda: x.rsample().exp(), 100_000, seed=0), expected.loc, expected.variance)


@each("std", [0.1, 0.5, 1.0])
@over("name", SMOOTH)
def test_smooth_activations_equal_dense_quadrature(name: str, std: float) -> None:
    """The mean's error is counted in output deviations."""
    function, error = SMOOTH[name]
    mean = torch.linspace(-3, 3, 13, dtype=torch.float64)
    stds = torch.full_like(mean, std)
    expected_mean, expected = dense(function, mean, stds)
    value = moments_of(function, Gaussian(mean, stds.square()))
    assert bool(((value.loc - expected_mean).abs() <= error * expected.sqrt()).all())
    assert bool(((value.variance / expected - 1).abs() <= error).all())


def test_every_function_ruled_by_quadrature_is_tried() -> None:
    assert {*QUADRATURE.values()} == {*table._SMOOTH}


def test_smooth_activations_of_wide_inputs_are_as_far_off_as_stated() -> None:
    """15 % of the variance at a std of 3."""
    mean, std = torch.linspace(-3, 3, 13).double(), torch.full((13,), 3.0).double()
    errors = {
        name: (moments_of(function, Gaussian(mean, std.square())).variance / dense(function, mean, std)[1] - 1)
        .abs()
        .max()
        for name, (function, _) in SMOOTH.items()
    }
    assert 0.1 < max(errors.values()).item() <= 0.15


@over("name", KINKED)
def test_kinks_are_as_far_off_as_stated(name: str) -> None:
    """3 % of the input's variance, and of its deviation in the mean."""
    function, worst = KINKED[name], 0.0
    for std in (0.1, 0.3, 1.0, 3.0):
        mean = torch.linspace(-4, 7, 111, dtype=torch.float64)
        stds = torch.full_like(mean, std)
        expected_mean, expected = dense(function, mean, stds)
        value = moments_of(function, Gaussian(mean, stds.square()))
        worst = max(worst, (value.variance - expected).abs().max().item() / std**2)
        assert (value.loc - expected_mean).abs().max().item() <= 0.03 * std
    assert (0.015 if name == "selu" else 1e-3) < worst <= 0.03


@over("name", QUADRATURE)
def test_smooth_activations_without_variance_are_the_function_itself(name: str) -> None:
    function = QUADRATURE[name]
    mean = torch.linspace(-3.1, 3.3, 8)
    value = moments_of(function, Gaussian(mean, torch.zeros(8)))
    torch.testing.assert_close(value.loc, function(mean), rtol=1e-5, atol=1e-6)
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
        mean, variance = dense(functools.partial(function, **options), x.loc, x.scale)
        torch.testing.assert_close(value.loc, mean, rtol=1e-2, atol=0)
        torch.testing.assert_close(value.variance, variance, rtol=1e-2, atol=0)
        plain_mean, _ = dense(function, x.loc, x.scale)
        assert not torch.allclose(plain_mean, mean, rtol=1e-5)


@over("name", ACTIVATIONS)
def test_every_activation_of_the_models_passes_a_gaussian(name: str) -> None:
    torch.manual_seed(1)
    model = mlp([3, 4, 4, 2], name, estimator=moments)
    output = model(torch.randn(5, 3))
    assert isinstance(output, Gaussian)
    (output.loc.square() + output.variance).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_function_without_a_rule_is_named() -> None:
    x = Gaussian(torch.zeros(1, 1, 4, 4), torch.ones(1, 1, 4, 4))
    cases: list[tuple[Function, str]] = [
        (nn.LPPool2d(2, 2), "lp_pool2d"),
        (nn.LocalResponseNorm(2), "local_response_norm"),
        (torch.log, "log"),
    ]
    for function, name in cases:
        with pytest.raises(TypeError, match=rf"no moment rule for `\w*{name}\w*`: register one with"):
            function(x)


def test_a_registered_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOMENT_RULES, torch.neg, lambda x: Gaussian(-x.loc, x.variance))
    value = moments_of(torch.neg, Gaussian(torch.ones(2), torch.full((2,), 3.0)))
    assert torch.equal(value.loc, -torch.ones(2))
    assert torch.equal(value.variance, torch.full((2,), 3.0))
