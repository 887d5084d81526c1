"""A posterior has the shape of its weight and says that it is no tensor."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayeslim import bayesianize_, prune_, weight_sample
from bayeslim.layers import Linear
from bayeslim.masks import Masked
from bayeslim.posteriors import MeanField, Posterior
from bayeslim.posteriors.base import NotATensor
from contracts.cases import each
from contracts.members import POSTERIORS, over

ADVICE = r"is a distribution, not a tensor; use its `\.mean\(\)`, or `\.rsample\(\)` for a draw"
X = torch.ones(3, 3)

USES: dict[str, Callable[[Any], Any]] = {
    "t": lambda q: q.t(),
    "norm": lambda q: q.norm(),
    "view": lambda q: q.view(-1),
    "transpose": lambda q: q.transpose(0, 1),
    "T": lambda q: q.T,
    "squeeze": lambda q: q.squeeze(1),
    "size": lambda q: q.size(0),
    "index": lambda q: q[0],
    "weight @ x": lambda q: q @ X,
    "x @ weight": lambda q: X @ q,
    "x * weight": lambda q: X * q,
    "weight * 2": lambda q: q * 2,
    "2 - weight": lambda q: 2 - q,
    "weight / x": lambda q: q / X,
    "weight ** 2": lambda q: q**2,
    "-weight": lambda q: -q,
    "F.linear": lambda q: F.linear(X, q),
    "torch.norm": lambda q: torch.norm(q),
    "nn.init": lambda q: nn.init.normal_(q),
}


def every(name: str) -> Posterior:
    init = torch.ones(3, 3, dtype=torch.float64)
    return Masked(MeanField(init), torch.eye(3)) if name == "Masked" else POSTERIORS[name](init)


@over("name", [*POSTERIORS, "Masked"])
def test_shape_type_and_device_are_those_of_the_mean(name: str) -> None:
    q = every(name)
    assert (q.shape, q.dtype, q.device) == (torch.Size([3, 3]), torch.float64, torch.device("cpu"))
    q = q.float()
    assert q.dtype == torch.float32
    with pytest.raises(AttributeError):
        q.shape = torch.Size([1])  # pyright: ignore[reportAttributeAccessIssue]
    assert POSTERIORS["MeanField"](torch.empty(2, 1, device="meta")).device.type == "meta"


@each("use", USES)
@each("name", [*POSTERIORS, "Masked"])
def test_what_only_a_tensor_can_is_refused_with_advice(name: str, use: str) -> None:
    with pytest.raises(NotATensor, match=ADVICE):
        USES[use](every(name))


class Functional(nn.Module):
    """Uses the weights of its layers by itself, in the ways of DeBERTa-v2, BEiT and Mamba."""

    def __init__(self, use: Callable[[Any], Any]) -> None:
        super().__init__()
        self.block = nn.ModuleDict({"q_proj": nn.Linear(3, 3), "out": nn.Linear(3, 3)})
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(cast(Any, self.block["q_proj"]).weight) + self.block["out"](x)


@over("use", ["t", "T", "index", "x @ weight", "F.linear"])
def test_the_layer_whose_weight_the_network_uses_itself_is_named(use: str) -> None:
    """Also in a copy, and where the weight has been pruned; doing what the message says helps."""
    network = bayesianize_(Functional(USES[use]))
    pruned = copy.deepcopy(network)
    prune_(pruned, amount=0.1)
    advice = r"layer 'block\.q_proj', used outside .* where=lambda name, module: not name\.endswith\('q_proj'\)"
    for model in (network, copy.deepcopy(network), pruned):
        with pytest.raises(NotATensor, match=rf"{ADVICE}\. It is the weight of {advice}"):
            model(X)
    assert bayesianize_(Functional(USES[use]), where=lambda name, module: not name.endswith("q_proj"))(X).shape == (
        3,
        3,
    )


def test_a_tied_weight_is_named_by_its_first_layer_and_attention_as_a_whole() -> None:
    network = nn.ModuleDict(
        {"table": nn.Embedding(3, 3), "head": nn.Linear(3, 3), "attention": nn.MultiheadAttention(3, 1)}
    )
    cast(Any, network["head"]).weight = network["table"].weight
    mixed: Any = bayesianize_(network)
    for weight, path in ((mixed["head"].weight, "table"), (mixed["attention"].out_proj.weight, "attention")):
        with pytest.raises(NotATensor, match=f"It is the weight of layer '{path}'"):
            F.linear(X, weight)


def test_a_layer_of_its_own_has_no_path() -> None:
    with pytest.raises(NotATensor, match=rf"{ADVICE}$"):
        F.linear(X, cast(Any, bayesianize_(nn.Linear(3, 3))).weight)


def test_other_names_are_missing_as_in_any_module() -> None:
    q: Any = every("MeanField")
    for name in ("unheard_of", "_base", "__array__"):
        with pytest.raises(AttributeError, match=f"'MeanField' object has no attribute '{name}'"):
            getattr(q, name)
    assert not any(hasattr(q, name) for name in ("numel", "requires_grad", "unheard_of"))


@over("name", [*POSTERIORS, "Masked"])
def test_copies_and_pickles(name: str) -> None:
    q = every(name)
    for twin in (copy.copy(q), copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert torch.equal(twin.mean(), q.mean())
    assert not hasattr(type(q).__new__(type(q)), "loc")  # before there is anything to look it up in


@over("name", [*POSTERIORS, "Masked"])
def test_layers_compile_in_one_graph(name: str) -> None:
    torch.compiler.reset()  # so that the graphs of other posteriors do not count
    layer = Linear.around(Linear(3, 3).op, torch.ones(3, 3), None, posterior=lambda init: every(name).float())
    layer.estimator = weight_sample
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    compiled(X).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


def test_a_member_may_keep_things_under_names_of_tensors() -> None:
    class Named(MeanField):
        """Has a parameter, a buffer and a value that are called as methods of tensors are."""

        def __init__(self, init: torch.Tensor) -> None:
            super().__init__(init)
            self.log, self.data = nn.Parameter(init), 3
            self.register_buffer("abs", init)

    q: Any = Named(torch.ones(2))
    assert torch.equal(q.log, torch.ones(2)) and torch.equal(q.abs, torch.ones(2)) and q.data == 3
