"""Clamps, absolute values and learned slopes: exact, by dense quadrature and by draws."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, uncertain

LOW, HIGH = certain(3, 1) - 0.5, certain(4, seed=101) + 0.5
SLOPES = torch.tensor([0.3, -0.2, 1.5]).double()

PIECES: dict[str, Function] = {
    "clamp": lambda x: torch.clamp(x, -0.4, 0.9),
    "clamp-narrow": lambda x: x.clamp(0.1, 0.1001),
    "clamp-wide": lambda x: x.clamp(-1e3, 1e3),
    "clamp-min": lambda x: x.clamp(min=0.3),
    "clamp-max": lambda x: torch.clamp(x, max=0.3),
    "clamp-infinite": lambda x: x.clamp(-math.inf, 0.3),
    "clip": lambda x: torch.clip(x, -0.4, math.inf),
    "clamp_min": lambda x: torch.clamp_min(x, -0.2),
    "clamp_max": lambda x: x.clamp_max(-0.2),
    "hardtanh": F.hardtanh,
    "hardtanh-options": nn.Hardtanh(-0.3, 2.0),
    "relu6": lambda x: F.relu6(5 * x),
    "relu6-module": nn.ReLU6(),
    "hardsigmoid": lambda x: F.hardsigmoid(4 * x),
    "abs": torch.abs,
    "prelu": lambda x: F.prelu(x, SLOPES[:1]),
    "prelu-channels": lambda x: F.prelu(x, SLOPES),
    "rrelu": nn.RReLU().eval(),
}
TENSORS: dict[str, Function] = {
    "clamp-tensors": lambda x: torch.clamp(x, LOW, HIGH),
    "clamp-crossed": lambda x: torch.clamp(x, HIGH, LOW),
    "clamp-min-tensor": lambda x: torch.clamp(x, min=LOW),
}


def dense(function: Function, x: Gaussian) -> tuple[Tensor, Tensor]:
    """Mean and variance by the midpoint rule with 400 000 points."""
    z = (torch.arange(400_000).double() + 0.5) / 400_000 * 24 - 12
    weight = torch.exp(-0.5 * z.square())
    weight = (weight / weight.sum()).reshape(-1, *[1] * x.ndim)
    values = torch.vmap(lambda z: function(x.loc + x.scale * z))(z)
    mean = (weight * values).sum(0)
    return mean, (weight * (values - mean).square()).sum(0)


@over("name", PIECES)
def test_moments_are_exact_by_quadrature(name: str) -> None:
    function, x = PIECES[name], uncertain(2, 3, seed=3)
    if name == "rrelu":
        function = functools.partial(F.leaky_relu, negative_slope=(1 / 8 + 1 / 3) / 2)
    found, (mean, variance) = moments_of(PIECES[name], x), dense(function, x)
    torch.testing.assert_close(found.loc, mean, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(found.variance, variance, rtol=1e-5, atol=1e-9)


@over("name", TENSORS)
def test_bounds_may_be_tensors(name: str) -> None:
    assert_exact(TENSORS[name], uncertain(2, 3, 4))


@over("name", [name for name in PIECES if name != "clamp-narrow"])
def test_gradients(name: str) -> None:
    assert_gradients(PIECES[name], uncertain(2, 3, seed=3))


def test_a_bound_at_the_mean_has_the_right_gradient() -> None:
    """Half of the mass is let through; a plain clamp would say all or nothing."""
    x = Gaussian(torch.tensor([0.0, 6.0]).double(), torch.tensor([1.0, 0.5]).double())
    assert_gradients(F.relu6, x)


def test_slopes_get_gradients() -> None:
    x, slope = uncertain(2, 3), SLOPES.clone().requires_grad_()

    def both(slope: Tensor) -> tuple[Tensor, Tensor]:
        found: Any = F.prelu(x, slope)
        return found.loc, found.variance

    assert torch.autograd.gradcheck(both, slope)
    assert isinstance(nn.PReLU()(Gaussian(torch.zeros(4), torch.ones(4))), Gaussian)


@each("name", PIECES | TENSORS)
def test_first_order(name: str) -> None:
    rtol = 1e-6 if name == "hardsigmoid" else 1e-12  # torch keeps its slope in single precision
    assert_first_order((PIECES | TENSORS)[name], uncertain(2, 3, 4, seed=3, mode="taylor"), rtol)


@each("name", PIECES)
@each("variance", [0.0, 1e-30, 1e-6, 1.0, 1e6])
def test_values_and_gradients_are_finite(name: str, variance: float) -> None:
    """In float32, and never more uncertain than the steepest slope makes the input."""
    function = (lambda x: F.prelu(x, SLOPES[:1].float())) if name.startswith("prelu") else PIECES[name]
    mean = torch.tensor([-1e5, -50.0, -3.0, 0.0, 1e-3, 3.0, 50.0, 1e5], requires_grad=True)
    v = torch.full_like(mean, variance, requires_grad=True)
    found = moments_of(function, Gaussian(mean, v))
    assert bool(found.loc.isfinite().all())
    factor = {"relu6": 25.0, "hardsigmoid": 16 / 36}.get(name, 1.0)
    assert (found.variance <= factor * variance * (1 + 1e-5)).all()
    for gradient in torch.autograd.grad((found.loc + found.variance).sum(), (mean, v)):
        assert bool(gradient.isfinite().all())


def test_float32_errors_of_a_clamp() -> None:
    """Below 1e-5 of the input's deviation and variance, wherever the bounds lie."""
    mean = torch.linspace(-20, 20, 4001)
    single, double = Gaussian(mean, torch.ones(4001)), Gaussian(mean.double(), torch.ones(4001).double())
    for bounds in ((-1.0, 1.0), (0.0, 6.0), (-12.0, 3.0), (0.0, 0.01)):
        found, expected = (moments_of(lambda x, b=bounds: x.clamp(*b), x) for x in (single, double))
        assert (found.loc.double() - expected.loc).abs().max().item() < 1e-5
        assert (found.variance.double() - expected.variance).abs().max().item() < 1e-5


def test_what_cannot_be_taken_is_told() -> None:
    x = uncertain(3)
    with pytest.raises(TypeError, match=r"`clamp` by an uncertain bound: use torch\.maximum"):
        x.clamp(x)
    with pytest.raises(ValueError, match=r"`min` or `max` of `clamp` must be given"):
        x.clamp()
    with pytest.raises(TypeError, match=r"`rrelu` in training.*call model\.eval\(\)"):
        nn.RReLU()(x)
    with pytest.raises(TypeError, match=r"`prelu` with an uncertain weight"):
        F.prelu(x, x)
