"""Exchanging modules inside a network."""

from __future__ import annotations

import copy
import pickle
from typing import Any, cast

import torch
from torch import nn

import bayeslim as bl
from bayeslim.layers import GRU, Linear, MultiheadAttention
from bayeslim.surgery import copied, nested_tensors_, replaced, sources, topmost, with_hooks


def nested() -> nn.Module:
    """A linear layer under three names, once inside a block that stands in two places."""
    shared = nn.Linear(2, 2)
    block = nn.Sequential(shared, nn.ReLU())
    return nn.ModuleDict({"a": block, "b": nn.Sequential(block, nn.Linear(2, 3)), "c": shared})


def test_topmost_finds_every_name_and_never_looks_inside_a_match() -> None:
    model = nested()
    linear = topmost(model, lambda name, module: isinstance(module, nn.Linear))
    assert [name for name, _ in linear] == ["a.0", "b.0.0", "b.1", "c"]
    assert linear[0][1] is linear[1][1] is linear[3][1]
    blocks = topmost(model, lambda name, module: isinstance(module, nn.Sequential | nn.Linear))
    assert [name for name, _ in blocks] == ["a", "b", "c"]
    assert topmost(model, lambda name, module: True) == [("", model)]
    # A name that begins with another one is not inside it.
    twins = nn.ModuleDict({"x": nn.Linear(1, 1), "xy": nn.Linear(1, 1)})
    assert [name for name, _ in topmost(twins, lambda name, module: bool(name))] == ["x", "xy"]


def test_replaced_exchanges_a_module_wherever_it_stands() -> None:
    model = cast(Any, nested())
    new = nn.Linear(2, 2)
    assert replaced(model, {id(model["c"]): new}) is model
    assert model["c"] is model["a"][0] is model["b"][0][0] is new
    assert model["b"][0] is model["a"]
    assert replaced(new, {id(new): model}) is model
    assert replaced(new, {}) is new


def test_hooks_move_with_their_handles() -> None:
    calls: list[str] = []
    old, new = nn.Linear(2, 2), nn.Linear(2, 2)
    handle = old.register_forward_hook(lambda module, args, output: calls.append("hook"))
    assert with_hooks(new, old) is new
    new(torch.zeros(1, 2))
    handle.remove()
    new(torch.zeros(1, 2))
    assert calls == ["hook"]


def test_sources_pair_layers_with_torchs_parameters() -> None:
    linear = nn.Linear(3, 2, bias=False)
    assert [(w is linear.weight, b) for _, w, b in sources(Linear.from_torch(linear), linear)] == [(True, None)]
    for plain, kind in ((nn.GRU(3, 2, 2, bidirectional=True), GRU), (nn.MultiheadAttention(4, 2), MultiheadAttention)):
        build: Any = kind
        layer = build.from_torch(plain)
        pairs = list(sources(layer, plain))
        assert {id(part) for part, _, _ in pairs} == {
            id(module) for module in layer.modules() if isinstance(module, Linear)
        }
        assert {id(p) for _, *both in pairs for p in both} == {id(p) for p in plain.parameters()}
        if isinstance(plain, nn.GRU):
            assert all(torch.equal(part.weight.mean(), weight) for part, weight, _ in pairs)
            assert all(bias is not None and torch.equal(cast(Any, part.bias), bias) for part, _, bias in pairs)


def test_nested_tensors_come_back_where_they_were() -> None:
    for allowed in (True, False):
        layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
        encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=allowed)
        for _ in range(2):  # twice, as when a network is converted in two steps
            nested_tensors_(encoder, allowed=False)
            assert not encoder.use_nested_tensor
        nested_tensors_(encoder, allowed=True)
        assert encoder.use_nested_tensor is allowed
        assert nested_tensors_(encoder, allowed=True) is None and encoder.use_nested_tensor is allowed


def test_copies_of_a_converted_encoder_pack_padding_again() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 1))
    bl.bayesianize_(model)
    for twin in (copied(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        plain: Any = bl.collapse_(twin)
        assert plain[0].use_nested_tensor and not cast(Any, model[0]).use_nested_tensor


def test_a_network_that_keeps_activations_can_be_copied() -> None:
    model: Any = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    hidden = model(torch.zeros(1, 2))
    model[1].kept, model[1].record = hidden, {"all": [hidden]}
    model.register_buffer("running", hidden.mean(0))
    twin: Any = copied(model)
    assert twin[1].kept is twin[1].record["all"][0] is not hidden and twin[1].kept.is_leaf
    torch.testing.assert_close(twin[1].kept, hidden)
    assert model[1].kept is hidden and twin.running is not model.running
    assert twin[0].weight is not model[0].weight and torch.equal(twin[0].weight, model[0].weight)
