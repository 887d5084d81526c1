"""Roots, inverses and quotients."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.powers import power
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, assert_states, certain, moments_of, uncertain

FUNCTIONS: dict[str, tuple[Function, float]] = {
    "sqrt": (torch.sqrt, 0.5),
    "rsqrt": (torch.rsqrt, -0.5),
    "reciprocal": (torch.reciprocal, -1),
    "inverse": (lambda x: 1 / x, -1),
    "pow": (lambda x: torch.pow(x, 1.5), 1.5),
    "operator": (lambda x: operator.pow(x, -2), -2),
}


def positive(mode: Any = "exact") -> Any:
    x = uncertain(2, 3, scale=0.3, mode=mode)
    return Gaussian(x.loc.abs() + 0.5, x.variance, mode)


@over("name", FUNCTIONS)
def test_moments_are_those_of_a_log_normal(name: str) -> None:
    function, exponent = FUNCTIONS[name]
    x, found = positive(), moments_of(function, positive())
    spread = np.log1p((x.variance / x.loc.square()).numpy())
    centre = x.loc.log().numpy() - spread / 2
    reference = stats.lognorm(s=abs(exponent) * np.sqrt(spread), scale=np.exp(exponent * centre))
    torch.testing.assert_close(found.loc, torch.from_numpy(reference.mean()))
    torch.testing.assert_close(found.variance, torch.from_numpy(reference.var()))


@over("name", FUNCTIONS)
def test_derivatives(name: str) -> None:
    function, _ = FUNCTIONS[name]
    assert_first_order(function, positive("taylor"))
    assert_gradients(function, positive())
    assert_gradients(function, positive("taylor"))


@pytest.mark.parametrize(
    ("exponent", "deviation", "stated"),
    [(0.5, 0.2, 0.01), (0.5, 0.5, 0.055), (-0.5, 0.2, 0.031), (-0.5, 0.5, 0.21), (-1, 0.2, 0.043), (-1, 0.5, 0.34)],
)
def test_powers_of_a_gamma_value_are_as_far_off_as_stated(exponent: float, deviation: float, stated: float) -> None:
    shape = deviation**-2

    def moment(order: float) -> float:
        return float(np.exp(special.gammaln(shape + order) - special.gammaln(shape))) * shape**-order

    true = moment(2 * exponent) - moment(exponent) ** 2
    found = power(Gaussian(torch.ones(1).double(), torch.full((1,), deviation**2).double()), exponent)
    assert_states(1 - found.scale.item() / true**0.5, stated)
    assert abs(found.loc.item() - moment(exponent)) < 0.1 * true**0.5


def test_a_quotient_is_the_product_with_the_inverse() -> None:
    a, b, fixed = uncertain(2, 3), Gaussian(-positive().loc, positive().variance), certain(2, 3)
    quotients: list[tuple[Any, Any]] = [
        (a / b, a * power(b, -1)),
        (fixed / b, fixed * power(b, -1)),
        (2 / b, 2 * power(b, -1)),
    ]
    for found, expected in quotients:
        assert torch.equal(found.loc, expected.loc) and torch.equal(found.variance, expected.variance)


def test_the_inverse_of_what_may_be_zero_is_anything() -> None:
    """It has no moments, and nothing that looks like some comes out."""
    found: Any = 1 / Gaussian(torch.tensor([0.1, 0.0]), torch.ones(2))
    assert found.scale[0].item() > 1000 and not bool(found.variance[1].isfinite())
    assert bool(power(Gaussian(torch.tensor([-1.0]), torch.ones(1)), 0.5).loc.isnan().all())  # as torch.sqrt(-1)


def test_certain_values_stay_certain() -> None:
    x = Gaussian(torch.tensor([0.0, 4.0]), torch.zeros(2))
    found: Any = x.sqrt()
    assert found.loc.tolist() == [0.0, 2.0] and not found.variance.any()
    assert x.dtype == torch.float32 and found.variance.dtype == torch.float32


def test_small_variances_are_not_rounded_away() -> None:
    """`s = v / m^2` to first order, far below the rounding of `1 + s`."""
    mean = torch.tensor([3.0])
    found = power(Gaussian(mean, mean.square() * 1e-10), 0.5)
    torch.testing.assert_close(found.variance, mean * 1e-10 / 4)
