"""Sums and products against Monte Carlo, and the covariances the library can know."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from bayeslim import layers
from bayeslim.estimators import moments, taylor_moments
from bayeslim.gaussian import Gaussian
from bayeslim.ops import ConvOp, ConvTransposeOp, LinearOp, Op
from bayeslim.posteriors import Posterior
from contracts.cases import each
from contracts.dense import bilinear_map
from contracts.members import over, perturbed
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, uncertain

A, B, W = uncertain(2, 3), uncertain(2, 3, seed=1), uncertain(2, 3, seed=2, scale=0.3)
ROW, COLUMN, FIXED = uncertain(3, seed=3), uncertain(2, 1, seed=4), certain(2, 3)
MASK = torch.tensor([[True, False, True], [False, False, True]])

EXACT: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "add": (torch.add, (A, B)),
    "add-alpha": (lambda a, b: torch.add(a, b, alpha=-0.4), (A, B)),
    "add-operator": (operator.add, (A, B)),
    "add-fixed": (operator.add, (A, FIXED)),
    "fixed-add": (operator.add, (FIXED, A)),
    "add-number": (lambda a: 2 + a + 1.5, (A,)),
    "add-broadcast": (operator.add, (ROW, COLUMN)),
    "add-larger-fixed": (operator.add, (ROW, FIXED)),
    "add-in-place": (operator.iadd, (A, B)),
    "sub": (torch.sub, (A, B)),
    "sub-alpha": (lambda a, b: torch.sub(a, b, alpha=3), (A, B)),
    "sub-fixed": (operator.sub, (A, FIXED)),
    "fixed-sub": (operator.sub, (FIXED, A)),
    "number-sub": (lambda a: 2 - a, (A,)),
    "mul": (torch.mul, (A, B)),
    "mul-fixed": (operator.mul, (A, FIXED)),
    "fixed-mul": (operator.mul, (FIXED, A)),
    "mul-number": (lambda a: 2 * a * -1.5, (A,)),
    "mul-broadcast": (operator.mul, (ROW, COLUMN)),
    "mul-larger-fixed": (operator.mul, (ROW, FIXED)),
    "div-fixed": (operator.truediv, (A, FIXED)),
    "div-number": (lambda a: torch.div(a, -4), (A,)),
    "true-divide": (lambda a: torch.true_divide(a, 3), (A,)),
    "neg": (operator.neg, (A,)),
    "neg-method": (lambda a: a.neg(), (A,)),
    "square": (torch.square, (A,)),
    "lerp": (torch.lerp, (A, B, W)),
    "lerp-number": (lambda a, b: torch.lerp(a, b, 0.3), (A, B)),
    "lerp-fixed-start": (torch.lerp, (FIXED, B, W)),
    "lerp-fixed-end": (torch.lerp, (A, FIXED, W)),
    "lerp-fixed-both": (torch.lerp, (FIXED, -FIXED, W)),
    "where": (lambda a, b: torch.where(MASK, a, b), (A, B)),
    "where-number": (lambda a: torch.where(MASK, 0.0, a), (A,)),
    "where-fixed": (lambda a, b: torch.where(MASK, a, b), (FIXED, B)),
    "where-method": (lambda a, b: a.where(MASK, b), (A, B)),
    "where-broadcast": (lambda a: torch.where(MASK, a, 1.0), (ROW,)),
    # the same value twice
    "x-plus-x": (lambda x: x + x, (A,)),
    "x-plus-x-alpha": (lambda x: torch.add(x, x, alpha=-0.5), (A,)),
    "x-minus-x": (lambda x: x - x, (A,)),
    "x-times-x": (lambda x: x * x, (A,)),
}


@each("name", EXACT)
def test_sums_and_products_are_exact(name: str) -> None:
    function, inputs = EXACT[name]
    assert_exact(function, *inputs)


def test_a_tensors_own_where_takes_a_gaussian() -> None:
    found: Any = FIXED.where(MASK, A)
    assert torch.equal(found.loc, torch.where(MASK, FIXED, A.loc))
    assert torch.equal(found.variance, torch.where(MASK, 0.0, A.variance))


def test_x_minus_x_is_certain() -> None:
    found = moments_of(lambda x: x - x, A)
    assert not found.loc.any() and not found.variance.any()


def test_rounded_division_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no moment rule for `div` with rounding_mode='floor': divide without it"):
        torch.div(A, 2, rounding_mode="floor")


@over("mode", ["exact", "taylor"])
def test_results_are_in_the_mode_of_their_operands(mode: Any) -> None:
    """First order if any operand is."""
    x, y = uncertain(2, 3, mode=mode), uncertain(2, 3, seed=1)
    results = [x + y, y + x, x * y, y * x, x - y, x / 2, -x, x * x, torch.lerp(y, y, x), torch.where(MASK, y, x)]
    assert {result.mode for result in results} == {mode}


SAME_SHAPE: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...]]] = {
    "linear": (LinearOp(), (4, 4), (3, 4)),
    "tokens": (LinearOp(), (4, 4), (2, 2, 4)),
    "conv1d": (ConvOp(1, (1,), (1,), (1,)), (2, 2, 3), (2, 2, 4)),
    "one by one": (ConvOp(2, (1, 1), (0, 0), (1, 1)), (3, 3, 1, 1), (1, 3, 2, 2)),
    "conv2d": (ConvOp(2, (1, 1), (1, 0), (1, 1)), (2, 2, 3, 1), (1, 2, 3, 2)),
    "groups": (ConvOp(1, (1,), (1,), (1,), groups=2), (4, 2, 3), (1, 4, 3)),
    "depthwise": (ConvOp(1, (1,), (1,), (1,), groups=4), (4, 1, 3), (1, 4, 3)),
    "dilation": (ConvOp(1, (1,), (2,), (2,)), (2, 2, 3), (1, 2, 5)),
    "same": (ConvOp(1, (1,), "same", (1,)), (2, 2, 5), (1, 2, 5)),
    "same, dilated": (ConvOp(2, (1, 1), "same", (3, 1)), (1, 1, 3, 3), (1, 1, 7, 3)),
    "nothing at its own place": (ConvOp(2, (1, 1), "same", (2, 1)), (1, 1, 2, 3), (1, 1, 4, 3)),
    "circular": (ConvOp(1, (1,), (1,), (1,), padding_mode="circular"), (2, 2, 3), (1, 2, 4)),
    "circular same": (ConvOp(1, (1,), "same", (1,), padding_mode="circular"), (2, 2, 4), (1, 2, 5)),
    "conv3d": (ConvOp(3, (1, 1, 1), (0, 1, 0), (1, 1, 1)), (2, 2, 1, 3, 1), (1, 2, 2, 2, 1)),
    "unbatched": (ConvOp(1, (1,), (1,), (1,)), (2, 2, 3), (2, 4)),
    "strided": (ConvOp(1, (2,), (2,), (1,)), (2, 2, 3), (1, 2, 2)),
    "transposed": (ConvTransposeOp(1, (1,), (1,), (1,), output_padding=(0,)), (2, 2, 3), (1, 2, 4)),
    "transposed groups": (ConvTransposeOp(1, (1,), (2,), (2,), groups=2, output_padding=(0,)), (4, 2, 3), (1, 4, 5)),
}
"""Maps whose output has the shape of their input."""


def residual_variance(op: Op, q: Posterior, x: Gaussian, factor: float) -> torch.Tensor:
    """`Var[x_o + factor sum_ij T_oij x_i w_j]`, all sums written out."""
    tensor = bilinear_map(op, tuple(x.shape), tuple(q.mean().shape))
    m, v, spread = x.loc.flatten(), x.variance.flatten(), q.variance().flatten()
    through_mean = torch.eye(len(m)).double() + factor * tensor @ q.mean().flatten()
    of_weights = torch.einsum("oij,i->oj", tensor, m).square() + torch.einsum("oij,i->oj", tensor.square(), v)
    return (through_mean.square() @ v + factor**2 * of_weights @ spread).reshape(x.shape)


@each("name", [name for name in SAME_SHAPE if name != "strided"])
@each("posterior", ["MeanField", "Multiplicative"])
def test_a_residual_connection_around_one_layer_is_exact(name: str, posterior: str) -> None:
    op, weight, shape = SAME_SHAPE[name]
    q, x = perturbed(posterior, weight), uncertain(*shape)
    y: Any = moments(q, op, x, None)
    sums: list[tuple[Any, float]] = [(x + y, 1.0), (y + x, 1.0), (x - y, -1.0), (torch.add(x, y, alpha=0.5), 0.5)]
    for found, factor in sums:
        torch.testing.assert_close(found.variance, residual_variance(op, q, x, factor), rtol=1e-10, atol=1e-12)
    apart = x.variance + y.variance
    assert torch.allclose((x + y).variance, apart, rtol=1e-3) == (name == "nothing at its own place")


def test_a_residual_connection_of_a_layer_with_a_bias() -> None:
    layer: Any = layers.Linear(3, 3, estimator=moments).double()
    x = uncertain(2, 3)
    found = x + layer(x)
    torch.testing.assert_close(found.loc, x.loc + layer(x.loc).loc)
    torch.testing.assert_close(found.variance, residual_variance(LinearOp(), layer.weight, x, 1.0))


def test_any_other_value_counts_as_independent() -> None:
    """Also an equal one, a strided map, whose places do not agree, and what has passed another function."""
    q, x = perturbed("MeanField", (3, 3)), uncertain(2, 3)
    y, twin = moments(q, LinearOp(), x, None), Gaussian(x.loc, x.variance)
    pairs: list[tuple[Any, Any]] = [(twin, y), (x, y * 1), (-x, y), (torch.relu(x), y)]
    for other, value in pairs:
        assert torch.equal((other + value).variance, other.variance + value.variance)
    op, weight, shape = SAME_SHAPE["strided"]
    x = uncertain(*shape)
    y = moments(perturbed("MeanField", weight), op, x, None)
    torch.testing.assert_close((x + y).variance, x.variance + y.variance)


def test_first_order_values_know_their_layer_too() -> None:
    q, x = perturbed("MeanField", (3, 3)), uncertain(2, 3, mode="taylor")
    found = x + taylor_moments(q, LinearOp(), x, None)
    assert found.mode == "taylor"
    torch.testing.assert_close(found.variance, residual_variance(LinearOp(), q, x, 1.0))


def test_the_square_to_first_order() -> None:
    x = uncertain(4, mode="taylor")
    squares: list[Any] = [torch.square(x), x * x]
    for found in squares:
        assert torch.equal(found.loc, x.loc.square())
        torch.testing.assert_close(found.variance, (2 * x.loc).square() * x.variance)
