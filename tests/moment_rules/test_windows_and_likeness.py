"""Running sums and windows, joined lists, and functions that look at shapes only."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules import shapes, table
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, certain, uncertain

IMAGE = uncertain(1, 2, 4, 3, mode="taylor")
FIXED = certain(1, 2, 4, 3)

LINEAR: dict[str, tuple[Any, Function]] = {
    "cumsum": (torch.cumsum, lambda x: torch.cumsum(x, 2)),
    "cumsum-method": (None, lambda x: x.cumsum(dim=-1)),
    "trace": (torch.trace, lambda x: torch.trace(x[0, 0])),
    "unfold": (F.unfold, lambda x: F.unfold(x, 2, padding=1)),
    "unfold-module": (None, nn.Unfold((2, 1), stride=2)),
    "unfold-method": (None, lambda x: x.unfold(2, 3, 1)),
    "fold": (F.fold, lambda x: F.fold(x.reshape(1, 4, 6), (3, 4), 2)),
    "fold-module": (None, lambda x: nn.Fold((2, 3), 2, padding=1, stride=2)(x.reshape(1, 6, 4)[:, :4])),
    "hstack": (None, lambda x: torch.hstack([x, FIXED])),
    "vstack": (None, lambda x: torch.vstack([FIXED, x])),
    "hstack-vectors": (None, lambda x: torch.hstack([x.flatten(), FIXED.flatten()])),
    "concatenate": (None, lambda x: torch.concatenate([x, FIXED], 1)),
}
"""The torch function, if one of `_ADDING`, and a call of it on (1, 2, 4, 3)."""


@over("name", LINEAR)
def test_sums_and_windows_are_linear_maps(name: str) -> None:
    assert_first_order(LINEAR[name][1], IMAGE)


def test_every_adding_function_is_tried() -> None:
    assert {function for function, _ in LINEAR.values()} - {None} == {*table._ADDING}


@over("name", ["cumsum", "fold", "unfold"])
def test_gradients(name: str) -> None:
    assert_gradients(LINEAR[name][1], IMAGE)


def test_windows_times_a_matrix_are_a_convolution() -> None:
    kernel = certain(3, 2, 2, 2)
    patches: Any = F.unfold(IMAGE, 2)
    found = (kernel.flatten(1) @ patches).reshape(1, 3, 3, 2)
    expected: Any = F.conv2d(IMAGE, kernel)
    torch.testing.assert_close(found.loc, expected.loc)
    torch.testing.assert_close(found.variance, expected.variance)


def test_unpooling_undoes_a_pool() -> None:
    pooled, places = nn.MaxPool2d(2, return_indices=True)(IMAGE)
    found: Any = nn.MaxUnpool2d(2)(pooled, places, output_size=IMAGE.shape)
    kept = found.variance > 0
    assert kept.sum() == pooled.numel()
    assert torch.equal(found.variance[kept], IMAGE.variance[kept]) and torch.equal(found.loc[kept], IMAGE.loc[kept])


LIKE: dict[str, tuple[Any, Function, tuple[int, ...]]] = {
    "expand_as": (Tensor.expand_as, lambda x, y: x[:, :1].expand_as(y), (1, 2, 4, 3)),
    "view_as": (Tensor.view_as, lambda x, y: x.view_as(y), (4, 6)),
    "reshape_as": (Tensor.reshape_as, lambda x, y: x.reshape_as(y), (6, 4)),
    "type_as": (Tensor.type_as, lambda x, y: x.type_as(y.to(torch.float32)), (1,)),
}


@over("name", LIKE)
def test_shape_and_type_of_another(name: str) -> None:
    """Of an uncertain one or a plain one; a plain input stays plain."""
    _, function, shape = LIKE[name]
    for other in (certain(*shape), uncertain(*shape)):
        found, expected = function(IMAGE, other), function(IMAGE.loc, certain(*shape))
        assert isinstance(found, Gaussian) and found.mode == "taylor"
        assert torch.equal(found.loc, expected) and found.dtype == expected.dtype
        assert torch.equal(found.variance, function(IMAGE.variance, certain(*shape)))
    plain = function(IMAGE.loc, uncertain(*shape))
    assert isinstance(plain, Tensor) and torch.equal(plain, function(IMAGE.loc, certain(*shape)))


def test_every_likeness_is_tried() -> None:
    assert {function for function, _, _ in LIKE.values()} == {*table._LIKE}


DESCRIBED: dict[Any, tuple[Any, ...]] = {
    torch.zeros_like: (),
    torch.ones_like: (),
    torch.full_like: (2.5,),
    torch.empty_like: (),
    torch.rand_like: (),
    torch.randn_like: (),
    torch.numel: (),
    torch.is_floating_point: (),
    torch.is_complex: (),
    Tensor.new_ones: ((2, 3),),
    Tensor.new_full: ((2,), 1.5),
    Tensor.new_empty: ((2, 3),),
    Tensor.new_tensor: ([1.0, 2.0],),
    Tensor.nelement: (),
    Tensor.ndimension: (),
}


@pytest.mark.parametrize("function", DESCRIBED, ids=lambda function: function.__name__)
def test_what_only_describes_is_that_of_the_mean(function: Any) -> None:
    arguments = DESCRIBED[function]
    found, expected = shapes.described(function)(IMAGE, *arguments), function(IMAGE.loc, *arguments)
    by_name = getattr(IMAGE, function.__name__) if hasattr(Tensor, function.__name__) else None
    for value in (found, *([by_name(*arguments)] if by_name is not None else [])):
        if not isinstance(expected, Tensor):
            assert value == expected
            continue
        assert type(value) is Tensor and value.dtype == expected.dtype and value.shape == expected.shape
        if "empty" not in function.__name__ and "rand" not in function.__name__:
            assert torch.equal(value, expected)


def test_every_describing_function_is_tried() -> None:
    assert {*DESCRIBED} == {*table._DESCRIBING}


def test_a_residual_of_zeros_changes_nothing() -> None:
    found: Any = IMAGE + torch.zeros_like(IMAGE)
    assert torch.equal(found.loc, IMAGE.loc) and torch.equal(found.variance, IMAGE.variance)
