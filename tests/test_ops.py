"""The linear maps behind the layers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bayeslim.ops import ConvOp, ConvTransposeOp, LinearOp, Op, swap_channels
from contracts.members import OPS, over
from contracts.statistics import ERRORS, draws


@over("case", OPS)
def test_linear_in_the_weight_and_additive_in_the_bias(case: str) -> None:
    op, x = OPS[case].op, OPS[case].input()
    torch.manual_seed(0)
    first, second = (torch.randn(OPS[case].weight, dtype=torch.float64) for _ in range(2))
    bias = torch.randn(4, dtype=torch.float64)
    combined = op(x, 2 * first - 3 * second, bias)
    apart = 2 * op(x, first) - 3 * op(x, second) + op.per_channel(bias)
    torch.testing.assert_close(combined, apart, rtol=1e-12, atol=1e-12)


@over("case", OPS)
def test_features_and_mix_factor_a_weight_of_low_rank(case: str) -> None:
    """`op(x, C B) = mix(features(x, B), C)` for coefficients `C` (out, P) and filters `B` (P, ...)."""
    op, x, shape = OPS[case].op, OPS[case].input(), OPS[case].weight
    torch.manual_seed(1)
    basis = torch.randn(3, *shape[1:], dtype=torch.float64)
    coefficients = torch.randn(shape[0], 3, dtype=torch.float64)
    full = op(x, torch.tensordot(coefficients, basis, 1))
    torch.testing.assert_close(op.mix(op.features(x, basis), coefficients), full, rtol=1e-11, atol=1e-12)


@over("case", OPS)
def test_signs_are_fair_and_shared_over_positions(case: str) -> None:
    op, x = OPS[case].op, OPS[case].input()
    one = op.random_signs(x)
    assert (one * x).shape == x.shape
    assert one.dtype == x.dtype
    channel = -1 if isinstance(op, LinearOp) else 1
    expected = [size if axis in (0, channel % x.ndim) else 1 for axis, size in enumerate(x.shape)]
    assert list(one.shape) == expected
    samples = draws(lambda: op.random_signs(x), 4000, seed=2)
    assert bool((samples.abs() == 1).all())
    flat = samples.flatten(1)
    correlation = flat.T @ flat / len(flat) - torch.eye(flat.shape[1])
    allowed = ERRORS / len(flat) ** 0.5
    assert flat.mean(0).abs().max().item() < allowed
    assert correlation.abs().max().item() < allowed


@over("groups", [1, 2, 4])
def test_swapping_channels_is_its_own_inverse(groups: int) -> None:
    weight = torch.randn(8, 3, 2, 2, generator=torch.Generator().manual_seed(3))
    swapped = swap_channels(weight, groups)
    assert swapped.shape == (3 * groups, 8 // groups, 2, 2)
    assert torch.equal(swap_channels(swapped, groups), weight)


@over("groups", [1, 2])
def test_transposed_convolution_is_the_adjoint_of_the_convolution(groups: int) -> None:
    """`<conv(x, W), y> = <x, conv_t(y, W')>`, with `W'` the same kernel in our layout."""
    torch.manual_seed(4)
    weight = torch.randn(4, 6 // groups, 3, dtype=torch.float64)
    x, y = torch.randn(2, 6, 9, dtype=torch.float64), torch.randn(2, 4, 5, dtype=torch.float64)
    forward = ConvOp(1, (2,), (1,), (1,), groups=groups)
    backward = ConvTransposeOp(1, (2,), (1,), (1,), groups=groups, output_padding=(0,))
    left = (forward(x, weight) * y).sum()
    right = (x * backward(y, swap_channels(weight, groups))).sum()
    torch.testing.assert_close(left, right)


def test_transposed_convolution_refuses_named_padding() -> None:
    op = ConvTransposeOp(1, (1,), "same", (1,), output_padding=(0,))
    with pytest.raises(ValueError, match=r"`padding` of a transposed convolution must be numbers, got 'same'"):
        op(torch.zeros(1, 1, 3), torch.zeros(1, 1, 2))


def test_asymmetric_same_padding_puts_the_extra_element_last() -> None:
    x = torch.arange(5.0).reshape(1, 1, 5)
    op = ConvOp(1, (1,), "same", (1,), padding_mode="circular")
    weight = torch.tensor([[[1.0, 10.0]]])
    padded = torch.tensor([[[0.0, 1.0, 2.0, 3.0, 4.0, 0.0]]])
    assert torch.equal(op(x, weight), F.conv1d(padded, weight))


DIAGONAL: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...]]] = {
    "linear": (LinearOp(), (4, 4), (2, 4)),
    "conv": (ConvOp(2, (1, 1), (1, 0), (1, 1)), (2, 2, 3, 1), (1, 2, 3, 2)),
    "groups": (ConvOp(1, (1,), (1,), (1,), groups=2), (4, 2, 3), (1, 4, 3)),
    "dilation": (ConvOp(1, (1,), (2,), (2,)), (2, 2, 3), (1, 2, 5)),
    "shifted": (ConvOp(1, (1,), (3,), (3,)), (2, 2, 3), (1, 2, 7)),
    "same": (ConvOp(1, (1,), "same", (2,)), (2, 2, 3), (1, 2, 5)),
    "even circular": (ConvOp(1, (1,), "same", (1,), padding_mode="circular"), (2, 2, 4), (1, 2, 5)),
    "none": (ConvOp(1, (1,), (1,), (2,)), (2, 2, 2), (1, 2, 4)),
    "transposed": (ConvTransposeOp(1, (1,), (1,), (1,), output_padding=(0,)), (2, 2, 3), (1, 2, 4)),
    "transposed groups": (ConvTransposeOp(1, (1,), (2,), (2,), groups=2, output_padding=(0,)), (4, 2, 3), (1, 4, 5)),
}
"""Ops whose output has the shape of their input: weight and input shapes."""


@over("case", DIAGONAL)
def test_the_diagonal_is_that_of_the_whole_matrix(case: str) -> None:
    op, shape, inputs = DIAGONAL[case]
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    units = torch.eye(math.prod(inputs), dtype=torch.float64)
    matrix = torch.stack([op(unit.reshape(inputs), weight).flatten() for unit in units], 1)
    expected = matrix.diagonal().reshape(inputs)
    assert torch.equal(op.diagonal(weight).expand(inputs), expected)
    assert bool(expected.any()) == (case != "none")


def test_a_strided_map_has_no_diagonal() -> None:
    op = ConvOp(1, (2,), (2,), (1,))
    assert op(torch.zeros(1, 2, 2), torch.zeros(2, 2, 3)).shape == (1, 2, 2)
    assert op.diagonal(torch.ones(2, 2, 3)).item() == 0


def test_ops_compare_by_value() -> None:
    """Two layers with the same options have equal ops: needed to save and to rebuild them."""
    assert LinearOp() == LinearOp()
    assert ConvOp(1, (1,), (1,), (1,)) == ConvOp(1, (1,), (1,), (1,))
    assert ConvOp(1, (1,), (1,), (1,)) != ConvOp(1, (2,), (1,), (1,))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("padding", ["valid", 0, 1])
def test_a_kernel_as_large_as_its_input(dimensions: int, padding: Any) -> None:
    """Without padding it is a matrix; a batch, a single example, with and without bias."""
    sizes, conv = (3, 4, 2)[:dimensions], (F.conv1d, F.conv2d, F.conv3d)[dimensions - 1]
    amounts = padding if padding == "valid" else (padding,) * dimensions
    op = ConvOp(dimensions, (1, 2, 1)[:dimensions], amounts, (1,) * dimensions)
    torch.manual_seed(0)
    weight, bias = torch.randn(5, 2, *sizes), torch.randn(5)
    for x in (torch.randn(7, 2, *sizes), torch.randn(2, *sizes), torch.randn(7, 2, *(size + 2 for size in sizes))):
        for own in (None, bias):
            torch.testing.assert_close(op(x, weight, own), conv(x, weight, own, op.stride, amounts))


def test_groups_are_not_one_matrix() -> None:
    op = ConvOp(2, (1, 1), (0, 0), (1, 1), groups=2)
    x, weight = torch.randn(7, 4, 3, 3), torch.randn(6, 2, 3, 3)
    torch.testing.assert_close(op(x, weight), F.conv2d(x, weight, groups=2))
