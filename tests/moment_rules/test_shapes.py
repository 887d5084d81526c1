"""Functions that move elements do the same to mean and variance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.gaussian import MOMENT_RULES, Gaussian
from bayeslim.moment_rules import shapes, table
from bayeslim.select import Select
from contracts.cases import each
from contracts.members import over
from moment_rules.monte_carlo import Function, certain, uncertain

INDEX = torch.tensor([2, 0])
PLACES = (2 * torch.arange(4) + torch.tensor([0, 1, 1, 0])).expand(2, 3, 4)
CASES: dict[str, tuple[Any, Function]] = {
    "reshape": (torch.reshape, lambda x: torch.reshape(x, (6, 4))),
    "flatten": (torch.flatten, lambda x: torch.flatten(x, 1)),
    "unflatten": (torch.unflatten, lambda x: torch.unflatten(x, -1, (2, 2))),
    "permute": (torch.permute, lambda x: torch.permute(x, (2, 0, 1))),
    "transpose": (torch.transpose, lambda x: torch.transpose(x, 0, -1)),
    "swapaxes": (torch.swapaxes, lambda x: torch.swapaxes(x, 0, 1)),
    "movedim": (torch.movedim, lambda x: torch.movedim(x, 0, 2)),
    "squeeze": (torch.squeeze, lambda x: torch.squeeze(x[:, :1], 1)),
    "unsqueeze": (torch.unsqueeze, lambda x: torch.unsqueeze(x, 1)),
    "chunk": (torch.chunk, lambda x: torch.chunk(x, 2, -1)),
    "split": (torch.split, lambda x: torch.split(x, [1, 3], -1)),
    "unbind": (torch.unbind, lambda x: torch.unbind(x, 1)),
    "narrow": (torch.narrow, lambda x: torch.narrow(x, 1, 1, 2)),
    "select": (torch.select, lambda x: torch.select(x, 1, 2)),
    "flip": (torch.flip, lambda x: torch.flip(x, (0, 2))),
    "roll": (torch.roll, lambda x: torch.roll(x, 1, 1)),
    "index_select": (torch.index_select, lambda x: torch.index_select(x, 1, INDEX)),
    "gather": (torch.gather, lambda x: torch.gather(x, 1, INDEX[None, :, None].expand(2, 2, 4))),
    "broadcast_to": (torch.broadcast_to, lambda x: torch.broadcast_to(x, (5, 2, 3, 4))),
    "repeat_interleave": (torch.repeat_interleave, lambda x: torch.repeat_interleave(x, 2, 1)),
    "clone": (torch.clone, torch.clone),
    "detach": (torch.detach, torch.detach),
    "t": (torch.t, lambda x: torch.t(x[0])),
    "adjoint": (torch.adjoint, torch.adjoint),
    "pixel_shuffle": (F.pixel_shuffle, lambda x: F.pixel_shuffle(x.reshape(1, 4, 3, 2), 2)),
    "pixel_unshuffle": (F.pixel_unshuffle, lambda x: F.pixel_unshuffle(x.reshape(1, 1, 4, 6), 2)),
    "view": (torch.Tensor.view, lambda x: x.view(6, 4)),
    "expand": (torch.Tensor.expand, lambda x: x[:, :1].expand(-1, 3, -1)),
    "repeat": (torch.Tensor.repeat, lambda x: x.repeat(1, 2, 1)),
    "contiguous": (torch.Tensor.contiguous, lambda x: x.transpose(0, 1).contiguous()),
    "to": (torch.Tensor.to, lambda x: x.to(torch.float32)),
    "float": (torch.Tensor.float, lambda x: x.float()),
    "double": (torch.Tensor.double, lambda x: x.double()),
    "cpu": (torch.Tensor.cpu, lambda x: x.cpu()),
    "moveaxis": (torch.moveaxis, lambda x: torch.moveaxis(x, 0, 2)),
    "swapdims": (torch.swapdims, lambda x: torch.swapdims(x, 0, 1)),
    "ravel": (torch.ravel, lambda x: torch.ravel(x)),
    "fliplr": (torch.fliplr, torch.fliplr),
    "flipud": (torch.flipud, torch.flipud),
    "rot90": (torch.rot90, lambda x: torch.rot90(x, 1, (1, 2))),
    "tile": (None, lambda x: torch.tile(x, (1, 2, 1))),
    "tensor_split": (torch.tensor_split, lambda x: torch.tensor_split(x, (1, 3), -1)),
    "split_with_sizes": (torch.split_with_sizes, lambda x: torch.split_with_sizes(x, [1, 3], -1)),
    "diagonal": (torch.diagonal, lambda x: torch.diagonal(x, dim1=1, dim2=2)),
    "tril": (torch.tril, torch.tril),
    "triu": (torch.triu, lambda x: torch.triu(x, 1)),
    "take": (torch.take, lambda x: torch.take(x, INDEX)),
    "take_along_dim": (torch.take_along_dim, lambda x: torch.take_along_dim(x, INDEX[None, :, None], 1)),
    "masked_select": (torch.masked_select, lambda x: torch.masked_select(x, torch.tensor([True, False, True, True]))),
    "unfold": (torch.Tensor.unfold, lambda x: x.unfold(-1, 2, 1)),
    "bfloat16": (torch.Tensor.bfloat16, lambda x: x.bfloat16()),
    "channel_shuffle": (F.channel_shuffle, lambda x: F.channel_shuffle(x.reshape(1, 4, 3, 2), 2)),
    "max_unpool1d": (F.max_unpool1d, lambda x: F.max_unpool1d(x, PLACES, [2])),
    "max_unpool2d": (F.max_unpool2d, lambda x: F.max_unpool2d(x[None], PLACES[None], (1, 2))),
    "max_unpool3d": (
        F.max_unpool3d,
        lambda x: F.max_unpool3d(x[:, :, None, None], PLACES[:, :, None, None], (1, 1, 2)),
    ),
    "tile-method": (None, lambda x: x.tile(2, 1)),
    "transpose-property": (None, lambda x: x[0].T),
    "matrix-transpose": (None, lambda x: x.mT),
    "reshape-method": (torch.Tensor.reshape, lambda x: x.reshape(6, 4)),
    "permute-method": (torch.Tensor.permute, lambda x: x.permute(2, 0, 1)),
    "flip-method": (torch.Tensor.flip, lambda x: x.flip(0, 2)),
    "index": (None, lambda x: x[1, :, ::2]),
    "ellipsis": (None, lambda x: x[..., None, 1]),
    "index-tensor": (None, lambda x: x[:, INDEX]),
    "index-mask": (None, lambda x: x[:, torch.tensor([True, False, True])]),
    "flatten-module": (None, nn.Flatten()),
    "unflatten-module": (None, nn.Unflatten(2, (2, 2))),
    "pad": (None, lambda x: F.pad(x, (1, 0, 0, 2))),
    "pad-circular": (None, lambda x: F.pad(x, (1, 2), "circular")),
}
"""The torch function whose rule it is, if one of `_MOVING`, and a call of it on (2, 3, 4)."""


def parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


@each("name", CASES)
def test_mean_and_variance_move_alike(name: str) -> None:
    function, x = CASES[name][1], uncertain(2, 3, 4, mode="taylor")
    found, means, variances = (parts(function(value)) for value in (x, x.loc, x.variance))
    assert len(found) == len(means)
    for value, mean, variance in zip(found, means, variances, strict=True):
        assert isinstance(value, Gaussian) and value.mode == "taylor"
        assert torch.equal(value.loc, mean) and torch.equal(value.variance, variance)
        assert value.dtype == mean.dtype


def test_every_moving_function_is_tried() -> None:
    assert {function for function, _ in CASES.values()} - {None} == {*table._MOVING} - {torch.Tensor.cuda}


def test_methods_have_the_rules_of_their_functions() -> None:
    x = uncertain(2, 3, 4)
    pairs: list[tuple[Any, Any]] = [
        (x.flatten(1), torch.flatten(x, 1)),
        (x.transpose(0, 1), torch.transpose(x, 0, 1)),
        (x.chunk(2, dim=-1)[1], torch.chunk(x, 2, -1)[1]),
        (x.relu(), torch.relu(x)),
        (x.sum(1, keepdim=True), torch.sum(x, 1, keepdim=True)),
        (x.softmax(-1), torch.softmax(x, -1)),
    ]
    for method, function in pairs:
        assert torch.equal(method.loc, function.loc) and torch.equal(method.variance, function.variance)


@pytest.mark.parametrize("join", [torch.cat, torch.concat, torch.stack])
@over("dim", [0, -1])
def test_joining_keeps_certain_parts_certain(join: Function, dim: int) -> None:
    x, y, fixed = uncertain(2, 3), uncertain(2, 3, seed=1, mode="taylor"), certain(2, 3)
    found = join([x, fixed, y], dim=dim)
    assert torch.equal(found.loc, join([x.loc, fixed, y.loc], dim=dim))
    assert torch.equal(found.variance, join([x.variance, torch.zeros(2, 3).double(), y.variance], dim=dim))
    assert found.mode == "taylor"
    assert join([x, fixed], dim=dim).mode == "exact"


def test_padding_has_no_variance() -> None:
    x = uncertain(1, 2, 3)
    found: Any = F.pad(x, (1, 1), value=2.5)
    assert torch.equal(found.loc[..., [0, -1]], torch.full((1, 2, 2), 2.5).double())
    assert not found.variance[..., [0, -1]].any()
    assert torch.equal(found.variance[..., 1:-1], x.variance)
    assert torch.equal(nn.ZeroPad1d(1)(x).variance, found.variance)


@over("mode", ["reflect", "replicate"])
def test_padding_that_repeats_its_neighbours_is_refused(mode: Any) -> None:
    x: Any = uncertain(1, 2, 4)
    message = rf"no moment rule for `pad` with mode '{mode}'.*need padding_mode='zeros' or 'circular'"
    with pytest.raises(TypeError, match=message):
        F.pad(x, (1, 1), mode)
    layer = nn.Conv1d(2, 2, 3, padding=1, padding_mode=mode).double()
    with pytest.raises(TypeError, match=message):
        layer(x)


def test_moving_keeps_gradients_and_detach_drops_them() -> None:
    mean = torch.zeros(2, 3, requires_grad=True)
    x = Gaussian(mean, torch.ones(2, 3))
    assert x.reshape(3, 2).loc.requires_grad
    assert not x.detach().loc.requires_grad


def test_every_rule_of_a_method_is_one_of_a_function() -> None:
    """`x.relu()` and `torch.relu(x)` can only differ where their arguments do."""
    different = {"where", "reshape", "permute", "flip"}
    for function, rule in MOMENT_RULES.items():
        name = getattr(function, "__name__", "")
        if function is getattr(torch, name, None) and hasattr(Tensor, name) and name not in different:
            assert MOMENT_RULES[getattr(Tensor, name)] is rule, name


def test_the_rules_of_lists_leave_plain_tensors_plain() -> None:
    """So that a layer may call them whatever it holds."""
    parts = [certain(2, 3), certain(2, 3, seed=1)]
    assert torch.equal(shapes.cat(parts, -1), torch.cat(parts, -1))
    assert torch.equal(shapes.stack(parts), torch.stack(parts))


def test_selected_channels_keep_the_mode() -> None:
    x = uncertain(2, 3, mode="taylor")
    found = Select.of(torch.tensor([2, 0]))(x)
    assert found.mode == "taylor" and torch.equal(found.variance, x.variance[:, [2, 0]])
