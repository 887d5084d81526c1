"""Follow the channels through a network: which are constant, which stand or fall together, which anybody needs.

Every tensor between two layers has channels on one axis. Elementwise operations, batch normalisation and pooling keep
them apart; additions tie those of their operands together; flattening turns one into a block of features; a layer that
mixes all of them starts new ones. What is not known to keep channels apart needs all of them: they are pinned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn.modules.batchnorm import _BatchNorm

from bayeslim.layers import MultiheadAttention
from bayeslim.pruning import operations, rules
from bayeslim.pruning.channels import Channels, Slots
from bayeslim.pruning.linear_map import PLAIN, LinearMap, linear_map
from bayeslim.pruning.tracing import parameters_read, tied_modules
from bayeslim.surgery import copied

__all__ = ["Reading", "Structure"]


@dataclass(frozen=True)
class Reading:
    """A layer that mixes the channels of its input."""

    name: str
    map: LinearMap
    inputs: Channels
    outputs: Channels
    blocking: Tensor
    """(outputs, inputs): where an output needs an input, because the bias cannot stand for it."""


class Structure:
    """The channels of all tensors of a traced network.

    Args:
        root: the network, in evaluation mode.
        graph: its graph.
        shapes: the shapes of its tensors.
        exact: whether constants may only be folded where the variance of the output is kept.
        read: attributes of layers that the network reads by itself, as of `attributes_read`.
    """

    def __init__(
        self,
        root: nn.Module,
        graph: fx.Graph,
        shapes: dict[fx.Node, torch.Size],
        exact: bool,
        read: Mapping[nn.Module, set[str]] | None = None,
    ) -> None:
        self._root, self._shapes, self._exact = root, shapes, exact
        self.slots = Slots()
        self.readings: list[Reading] = []
        self.norms: list[tuple[str, Channels]] = []
        self.attentions: list[str] = []
        """Attention modules of which only the output is used, not the attention weights."""
        self.tensors: list[Channels] = []
        self._state: dict[fx.Node, Channels | None] = {}
        calls = Counter(root.get_submodule(str(n.target)) for n in graph.nodes if n.op == "call_module")
        sized = [module for module, names in (read or {}).items() if names & {"out_features", "out_channels"}]
        self.uncut: dict[nn.Module, str] = {
            **dict.fromkeys(sized, "the network reads its size"),
            **dict.fromkeys(parameters_read(root, graph), "the network reads its parameters"),
            **dict.fromkeys(tied_modules(root), "it shares its parameters"),
            **{module: "it is called more than once" for module, count in calls.items() if count > 1},
        }
        """Modules that stay as they are, and why."""
        self.pins: list[tuple[fx.Node, Tensor]] = []
        """Operations that need all channels of an input, and the slots of these."""
        for node in graph.nodes:
            state = self._state[node] = self._visit(node)
            if state is not None:
                self.tensors.append(state)

    def needed(self) -> Tensor:
        """Whether what a slot holds reaches an output or something pinned, by the slot's representative."""
        roots, needed = self.slots.roots(), self.slots.pinned()
        while True:
            before = needed.clone()
            for reading in reversed(self.readings):
                if reading.map.groups == 1:  # a group's inputs and outputs have one slot
                    rows = needed[roots[reading.outputs.slots]]
                    columns = reading.blocking[rows].any(0)
                    needed[roots[reading.inputs.slots[columns]]] = True
            if bool((needed == before).all()):
                return needed

    def _visit(self, node: fx.Node) -> Channels | None:
        if node.op in ("placeholder", "get_attr"):
            return None
        module = self._root.get_submodule(str(node.target)) if node.op == "call_module" else None
        if module is not None:
            state = self._module(node, module)
        else:
            state = None if node.op == "output" else self._function(node)
        if state is None and not operations.only_asks_for_shape(node):
            self._pin_inputs(node)
        if node.all_input_nodes and operations.changes_input(node, module):
            self._state[node.all_input_nodes[0]] = state
        return state

    def _pin_inputs(self, node: fx.Node) -> None:
        """All channels that come in are needed as they are."""
        for source in node.all_input_nodes:
            state = self._state[source]
            if state is not None:
                self.slots.pin(state.slots)
                self.pins.append((node, state.slots))
                if node.op != "call_module":  # it may have written into its input
                    self._state[source] = state.holding(torch.zeros_like(state.constant), state.value)

    def _module(self, node: fx.Node, module: nn.Module) -> Channels | None:
        hooked = bool(module._forward_hooks or module._forward_pre_hooks)
        if isinstance(module, MultiheadAttention):
            whole = any(user.op == "output" or user.args[1:] != (0,) for user in node.users)
            if not (hooked or whole or module in self.uncut):
                self.attentions.append(str(node.target))
            return None
        given = (*node.args, *node.kwargs.values())
        source: Any = given[0] if len(given) == 1 else None
        if hooked or source not in self._shapes or node not in self._shapes:
            return None
        shape, state = self._shapes[source], self._state[source]
        mixing = None if module in self.uncut else _linear_map(module)
        if mixing is not None:
            return self._mixed(node, shape, state, mixing)
        if state is None:
            return None
        if type(module) in operations.ELEMENTWISE_MODULES:
            return rules.elementwise(state, module)
        if type(module) in operations.POOL_MODULES:
            return rules.pooled(state, shape, module, operations.POOL_MODULES[type(module)])
        if isinstance(module, nn.Flatten):
            return rules.flattened(state, shape, module.start_dim, module.end_dim)
        if isinstance(module, _BatchNorm) and module not in self.uncut:
            result = rules.normalised(state, module)
            if result is not None:
                self.norms.append((str(node.target), result))
            return result
        return None

    def _function(self, node: fx.Node) -> Channels | None:
        kind, function = operations.kind_of(node)
        sources = node.all_input_nodes
        if kind == "unknown" or node not in self._shapes or any(self._state[source] is None for source in sources):
            return self._reshaped(node, kind)
        states: list[Any] = [self._state[source] for source in sources]
        options = {name: value for name, value in node.kwargs.items() if name != "inplace"}

        def call(*values: Tensor) -> Tensor:
            table = dict(zip(sources, values, strict=True))
            return function(*map_arg(node.args, table.__getitem__), **map_arg(options, table.__getitem__))

        shape = self._shapes[sources[0]]
        if kind == "cat":
            given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
            parts: Any = node.args[0] if node.args else node.kwargs["tensors"]
            return rules.concatenated([self._state[part] for part in parts], given % len(shape))
        if kind == "binary" and len(sources) == 2:
            return self._combined(node, states, call, function)
        if len(sources) != 1:
            return None
        if kind in ("elementwise", "binary"):
            same = self._shapes[node] == shape
            return rules.elementwise(states[0], call, operations.draws_noise(node)) if same else None
        if kind == "pool":
            return rules.pooled(states[0], shape, call, operations.POOLS[function])
        if kind == "reduction":
            given = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
            return rules.reduced(states[0], shape, self._shapes[node], call, given)
        return self._reshaped(node, kind)

    def _reshaped(self, node: fx.Node, kind: str) -> Channels | None:
        """A flatten, also one written as `x.view(len, -1)`, which has the batch size as a second input."""
        source = node.args[0] if node.args else node.kwargs.get("input")
        if kind not in ("flatten", "reshape") or not isinstance(source, fx.Node) or source not in self._shapes:
            return None
        shape, state, rest = self._shapes[source], self._state[source], node.args[1:]
        if state is None:
            return None
        if kind == "flatten":
            bounds: Any = {"start_dim": 0, "end_dim": -1}
            bounds |= dict(zip(bounds, rest, strict=False)) | node.kwargs
            return rules.flattened(state, shape, bounds["start_dim"], bounds["end_dim"])
        sizes: Any = rest[0] if len(rest) == 1 and isinstance(rest[0], list | tuple) else rest
        result = self._shapes[node]
        keeps_batch = len(sizes) == 2 and sizes[1] == -1 and len(result) == 2 and result[0] == shape[0]
        return rules.flattened(state, shape, 1, -1) if keeps_batch else None

    def _combined(self, node: fx.Node, states: list[Channels], call: Any, function: Any) -> Channels | None:
        first, second = states
        ranks = {len(self._shapes[tensor]) for tensor in (*node.all_input_nodes, node)}
        if len(ranks) > 1 or first.axis != second.axis or len(first.slots) != len(second.slots):
            return None
        self.slots.join(first.slots, second.slots)
        constant, value = first.constant & second.constant, call(first.known(), second.known())
        if operations.BINARY.get(function, getattr(function, "__name__", "")) == "mul":
            zero = (first.constant & (first.value == 0)) | (second.constant & (second.value == 0))
            constant, value = constant | zero, value.masked_fill(zero, 0.0)
        return first.holding(constant, value)

    def _mixed(self, node: fx.Node, shape: torch.Size, state: Channels | None, mixing: LinearMap) -> Channels:
        axis = len(shape) - 1 - mixing.dimensions
        if state is None or state.axis != axis:  # nothing is known on the axis the layer reads
            self._pin_inputs(node)
            state = self.slots.channels(axis, mixing.inputs)
            self.slots.pin(state.slots)
        foldable = mixing.foldable(state.constant, state.value, self._exact)
        blocking = mixing.alive & ~foldable
        constant = ~blocking.any(1)
        if self._exact and not mixing.bias_certain:
            constant = torch.zeros_like(constant)
        fresh = self.slots.channels(axis, mixing.outputs)
        if mixing.groups > 1:
            inputs, outputs = (part.view(mixing.groups, -1) for part in (state.slots, fresh.slots))
            for side in (inputs, outputs):
                self.slots.join(side.flatten(), inputs[:, :1].expand_as(side).flatten())
        outputs = fresh.holding(constant, mixing.bias + mixing.mean @ state.known())
        self.readings.append(Reading(str(node.target), mixing, state, outputs, blocking))
        return outputs


def _linear_map(module: nn.Module) -> LinearMap | None:
    """The view of a layer, in which weights of a plain one that are exactly zero count as pruned: it has no masks."""
    mixing = linear_map(module)
    if mixing is None or type(module) not in PLAIN:
        return mixing
    sizes = copied(module)
    sizes.weight = nn.Parameter(module.weight.detach().abs())  # pyright: ignore[reportCallIssue]
    view = linear_map(sizes)
    return mixing if view is None else replace(mixing, alive=view.mean > 0)
