"""Products, sums and plain layers against Monte Carlo."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.statistics import assert_moments
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, sampled, uncertain

A, B = uncertain(2, 3), uncertain(3, 2, seed=1)
VECTOR, FIXED = uncertain(3, seed=2), certain(3, 2)
BATCH, OTHER = uncertain(2, 2, 3, seed=3), uncertain(2, 3, 2, seed=4)
SEQUENCE, IMAGE, VOLUME = uncertain(2, 2, 4), uncertain(1, 4, 3, 3, seed=5), uncertain(1, 2, 2, 3, 2, seed=6)

EXACT: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "matmul": (torch.matmul, (A, B)),
    "matmul-operator": (operator.matmul, (A, B)),
    "matmul-fixed": (operator.matmul, (A, FIXED)),
    "fixed-matmul": (operator.matmul, (certain(2, 3), B)),
    "matmul-broadcast": (torch.matmul, (BATCH, B)),
    "matmul-vectors": (torch.matmul, (VECTOR, uncertain(3, seed=7))),
    "mm": (torch.mm, (A, B)),
    "mv": (torch.mv, (A, VECTOR)),
    "mv-fixed": (torch.mv, (A, certain(3))),
    "bmm": (torch.bmm, (BATCH, OTHER)),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), (BATCH, OTHER)),
    "einsum-fixed": (lambda a, b: torch.einsum("ij,jk->ki", a, b), (A, FIXED)),
    "einsum-one": (lambda a: torch.einsum("bij->ji", a), (BATCH,)),
    "einsum-list": (lambda a, b: torch.einsum("ij,jk->ik", [a, b]), (A, B)),
    "sum": (torch.sum, (BATCH,)),
    "sum-dim": (lambda a: torch.sum(a, 1), (BATCH,)),
    "sum-dims": (lambda a: a.sum((0, -1), keepdim=True), (BATCH,)),
    "mean": (torch.mean, (BATCH,)),
    "mean-dim": (lambda a: torch.mean(a, 1), (BATCH,)),
    "mean-dims": (lambda a: torch.mean(a, dim=(0, 2), keepdim=True), (BATCH,)),
    "mean-method": (lambda a: a.mean(1), (BATCH,)),
    "mean-method-dims": (lambda a: a.mean(dim=(0, 2), keepdim=True), (BATCH,)),
    "mean-method-list": (lambda a: a.mean([0, 2]), (BATCH,)),
    "mean-method-all": (lambda a: a.mean(), (BATCH,)),
    "mean-method-axis": (lambda a: a.mean(axis=-1, keepdims=True), (BATCH,)),
    "linear": (F.linear, (BATCH, certain(4, 3), certain(4))),
    "linear-no-bias": (F.linear, (A, certain(4, 3))),
    "linear-all-uncertain": (F.linear, (A, uncertain(4, 3, seed=8), uncertain(4, seed=9))),
    "linear-uncertain-weight": (F.linear, (certain(2, 3), uncertain(4, 3, seed=8), certain(4, seed=9))),
    "linear-uncertain-bias": (F.linear, (A, certain(4, 3), uncertain(4, seed=9))),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), (SEQUENCE, certain(3, 2, 3), certain(3))),
    "conv1d-same": (lambda x, w: F.conv1d(x, w, padding="same", dilation=2), (SEQUENCE, certain(3, 2, 3))),
    "conv1d-uncertain-bias": (F.conv1d, (SEQUENCE, certain(3, 2, 3), uncertain(3, seed=9))),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, 1, 1), (IMAGE, certain(2, 4, 2, 2), certain(2))),
    "conv2d-groups": (lambda x, w: F.conv2d(x, w, groups=2, dilation=(1, 2)), (IMAGE, certain(4, 2, 2, 2))),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b, padding=(0, 1, 0)), (VOLUME, certain(3, 2, 2, 2, 1), certain(3))),
    "transposed1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1),
        (SEQUENCE, certain(2, 3, 3), certain(3)),
    ),
    "transposed2d": (
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, groups=2, dilation=1),
        (IMAGE, certain(4, 1, 3, 2)),
    ),
    "transposed3d": (F.conv_transpose3d, (VOLUME, certain(2, 1, 1, 2, 2), certain(1))),
}


@each("name", EXACT)
def test_linear_maps_are_exact(name: str) -> None:
    function, inputs = EXACT[name]
    assert_exact(function, *inputs)


def test_one_plain_layer_is_exact() -> None:
    """With circular padding too; a second layer would see correlated inputs."""
    for layer in (nn.Conv2d(4, 2, 2, padding=1, padding_mode="circular"), nn.ConvTranspose2d(4, 2, 2), nn.Linear(3, 2)):
        assert_exact(layer.double(), IMAGE)


@pytest.mark.parametrize("convolve", [F.conv1d, F.conv_transpose1d])
def test_a_convolution_with_uncertain_weights_and_bias(convolve: Function) -> None:
    """Of one position, and so one linear map of independent products: `F.linear` gives the variance."""
    x, w, b = uncertain(2, 3, 1), uncertain(3, 4, seed=1), uncertain(4, seed=2)
    weight = w.unsqueeze(-1) if convolve is F.conv_transpose1d else w.t().unsqueeze(-1)
    found, expected = convolve(x, weight, b), moments_of(F.linear, x.squeeze(-1), w.t(), b)
    torch.testing.assert_close(found.loc.squeeze(-1), expected.loc)
    torch.testing.assert_close(found.variance.squeeze(-1), expected.variance)


def test_a_convolution_with_an_uncertain_kernel_by_monte_carlo() -> None:
    x, w = uncertain(1, 2, 3), uncertain(2, 2, 2, seed=1)

    def by_hand(x: Any, w: Any) -> Any:
        """The same products without a convolution, which `vmap` would run as thousands of groups."""
        return torch.einsum("bitk,oik->bot", x.unfold(-1, 2, 1), w)

    found = moments_of(F.conv1d, x, w)
    assert_moments(sampled(by_hand, x, w), found.loc, found.variance)


def test_sums_take_a_type() -> None:
    x = Gaussian(torch.ones(4), torch.ones(4))
    for function in (torch.sum, torch.mean):
        found = moments_of(lambda x, f=function: f(x, 0, dtype=torch.float64), x)
        assert found.dtype == torch.float64


def test_the_mode_travels() -> None:
    x: Any = uncertain(2, 3, mode="taylor")
    fixed = certain(3, 3)
    results: list[Any] = [
        x @ fixed,
        certain(2, 2) @ x,
        x @ uncertain(3, 1),
        F.linear(x, fixed),
        F.linear(uncertain(2, 3), x),  # an uncertain weight counts too
        torch.einsum("ij->j", x),
        torch.sum(x),
        torch.mean(x, 0),
    ]
    assert all(result.mode == "taylor" for result in results)


def test_a_sum_of_products_of_three_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no moment rule for `einsum` of 3 operands: write it as products of two"):
        torch.einsum("ij,jk,kl->il", A, FIXED, A)
