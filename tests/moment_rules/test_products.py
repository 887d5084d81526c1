"""Matrix products by other names, and sums of products whose axes stand alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import over
from moment_rules.jacobians import assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, uncertain

A, B, ROW, OTHER = uncertain(2, 3), uncertain(3, 2, seed=1), uncertain(3, seed=2), uncertain(3, seed=3)
BATCH, SQUARE = uncertain(2, 2, 3, seed=4), uncertain(2, 2, 2, seed=5)

DIMS: Any = ([0, 1], [0, 1])

EXACT: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "dot": (torch.dot, (ROW, OTHER)),
    "dot-fixed": (torch.dot, (certain(3), ROW)),
    "vdot": (torch.vdot, (ROW, OTHER)),
    "vecdot": (torch.linalg.vecdot, (A, ROW)),
    "inner": (torch.inner, (A, ROW)),
    "outer": (torch.outer, (ROW, certain(2))),
    "kron": (torch.kron, (A, certain(2, 2))),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), (BATCH, B)),
    "tensordot-dims": (lambda a, b: torch.tensordot(a, b, dims=DIMS), (BATCH, certain(2, 2, 4))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), (uncertain(2, 2, seed=6), A, B)),
    "addmm-fixed": (torch.addmm, (certain(2), A, certain(3, 2))),
    "addmm-added": (torch.addmm, (uncertain(2, 2, seed=6), certain(2, 3), certain(3, 2))),
    "addmv": (torch.addmv, (uncertain(2, seed=7), A, certain(3))),
    "baddbmm": (torch.baddbmm, (SQUARE, BATCH, certain(2, 3, 2))),
    "addcmul": (lambda c, a, b: torch.addcmul(c, a, b, value=0.3), (A, uncertain(2, 3, seed=8), certain(2, 3))),
    "rsub": (lambda a: torch.rsub(a, 1, alpha=2), (A,)),
    # an axis of one operand that is summed on its own: its elements meet the same factor
    "alone-second": (lambda a, b: torch.einsum("ij,k->i", a, b), (A, uncertain(4, seed=9))),
    "alone-both": (lambda a, b: torch.einsum("ij,k->", a, b), (A, OTHER)),
    "alone-fixed": (lambda a, b: torch.einsum("ij,jk->i", a, b), (A, certain(3, 4))),
    "alone-diagonal": (lambda a, b: torch.einsum("bii,k", a, b), (SQUARE, OTHER)),
    "ellipsis": (lambda a, b: torch.einsum("...j,jk->...", a, b), (BATCH, certain(3, 2))),
    "no-arrow": (lambda a, b: torch.einsum("ij,jk", a, b), (A, B)),
    "spaces": (lambda a, b: torch.einsum("b i j, j k -> b k i", a, b), (BATCH, B)),
}


@each("name", EXACT)
def test_products_are_exact(name: str) -> None:
    function, inputs = EXACT[name]
    assert_exact(function, *inputs)


@over("name", ["addmm", "tensordot", "alone-both"])
def test_gradients(name: str) -> None:
    function, inputs = EXACT[name]
    assert_gradients(function, *inputs)


def test_the_mode_travels() -> None:
    x = uncertain(2, 3, mode="taylor")
    results = [torch.addmm(certain(2), x, B), torch.einsum("ij,k->i", x, ROW), torch.outer(x[0], ROW)]
    assert {moments_of(lambda r=r: r).mode for r in results} == {"taylor"}


SQUARED = uncertain(3, 3)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        (lambda: torch.einsum("ij,ij->i", A, A), "einsum"),
        (lambda: torch.einsum("ij,kj->", A, A), "einsum"),
        (lambda: torch.dot(ROW, ROW), "dot"),
        (lambda: SQUARED @ SQUARED, "matmul"),
    ],
)
def test_a_value_with_itself_is_refused(product: Function, name: str) -> None:
    with pytest.raises(TypeError, match=rf"`{name}` of an uncertain value with itself.*torch\.sum\(torch\.square\(x\)"):
        product()
    assert isinstance(torch.sum(torch.square(A), 1), Gaussian)


def test_an_ellipsis_that_is_summed_is_refused() -> None:
    with pytest.raises(TypeError, match=r"`einsum` that sums over an ellipsis, got '\.\.\.j,j->': name its axes"):
        torch.einsum("...j,j->", BATCH, ROW)
