"""Powers, exponentials less one, gated units and the softmin."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayeslim.gaussian import Gaussian
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, moments_of, uncertain

FUNCTIONS: dict[str, Function] = {
    "pow-0": lambda x: x**0,
    "pow-1": lambda x: torch.pow(x, 1),
    "pow-2": lambda x: x**2,
    "pow-2.0": lambda x: x.pow(2.0),
    "pow-3": lambda x: x**3,
    "pow-operator": lambda x: operator.pow(x, 4),
    "expm1": torch.expm1,
    "glu": lambda x: F.glu(x, -1),
    "glu-module": nn.GLU(0),
}


@over("name", FUNCTIONS)
def test_moments_by_monte_carlo(name: str) -> None:
    assert_exact(FUNCTIONS[name], uncertain(2, 4, scale=0.5))


@over("name", FUNCTIONS)
@over("mode", ["exact", "taylor"])
def test_gradients(name: str, mode: Any) -> None:
    assert_gradients(FUNCTIONS[name], uncertain(2, 4, scale=0.5, mode=mode))


@over("name", [name for name in FUNCTIONS if "glu" not in name])
def test_first_order(name: str) -> None:
    assert_first_order(FUNCTIONS[name], uncertain(2, 4, mode="taylor"))


def test_high_powers_against_the_moments_of_a_gaussian() -> None:
    """`E[x^8]` and `E[x^16]` of a standard normal are 105 and 2 027 025."""
    found = moments_of(lambda x: x**8, Gaussian(torch.zeros(1).double(), torch.ones(1).double()))
    assert found.loc.item() == pytest.approx(105, rel=1e-10)
    assert found.variance.item() == pytest.approx(2_027_025 - 105**2, rel=1e-9)


def test_high_whole_exponents_are_refused() -> None:
    with pytest.raises(TypeError, match=r"`pow` with exponent 9: whole numbers may be up to 8"):
        operator.pow(uncertain(3), 9)


def test_the_square_is_the_same_by_any_name() -> None:
    x: Any = uncertain(3)
    squared: Any = torch.square(x)
    for found in (x**2, x * x, x.pow(2)):
        assert torch.equal(found.variance, squared.variance)


def test_softmin_is_the_softmax_of_the_negative() -> None:
    x = uncertain(2, 3)
    found, expected = moments_of(nn.Softmin(-1), x), moments_of(lambda x: torch.softmax(-x, -1), x)
    assert torch.equal(found.loc, expected.loc) and torch.equal(found.variance, expected.variance)
