"""Which layers keep units that are pruned whole, and why."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvTransposeNd

from bayeslim.layers import MultiheadAttention
from bayeslim.masks import mask_of
from bayeslim.ops import swap_channels
from bayeslim.pruning.linear_map import BAYESIAN, PLAIN, linear_map
from bayeslim.pruning.structure import Structure

__all__ = ["staying_units"]


def staying_units(root: nn.Module, graph: fx.Graph, structure: Structure) -> dict[str, str]:
    """Layers with outputs whose weights are all pruned and that stay: how many, and what keeps them.

    A layer that gives an output of the network is left out, whose shape stays.

    Args:
        root: the traced network, not cut yet.
        graph: its graph.
        structure: its channels.
    """
    called = {
        str(node.target): root.get_submodule(str(node.target)) for node in graph.nodes if node.op == "call_module"
    }
    readings = {reading.name: reading for reading in structure.readings}
    found: dict[str, str] = {}
    for name, layer in root.named_modules():
        dead = _dead_outputs(layer)
        if not bool(dead.any()):
            continue
        if name in readings:
            reason = _pinned_by(root, structure, readings[name].outputs.slots[dead])
        elif name in called:
            reason = structure.uncut.get(layer) or _not_followed(layer)
        else:
            outer = next((outer for outer in called if name.startswith(f"{outer}.")), None)
            reason = None if outer is None else _inside(outer, called[outer])
        if reason is not None:
            found[_own(name)] = f"{int(dead.sum())} of {len(dead)} outputs: {reason}"
    return found


def _dead_outputs(layer: Any) -> Tensor:
    """(outputs,) whether all weights of an output are pruned; empty for what is no linear layer or convolution."""
    if type(layer) in BAYESIAN:
        kept = mask_of(layer.weight)
    elif type(layer) in PLAIN:
        kept = swap_channels(layer.weight, layer.groups) if isinstance(layer, _ConvTransposeNd) else layer.weight
    else:
        return torch.zeros(0, dtype=torch.bool)
    return (kept == 0).flatten(1).all(1).cpu()


def _pinned_by(root: nn.Module, structure: Structure, slots: Tensor) -> str | None:
    """What needs all of these channels, if it is not the output of the network."""
    roots = structure.slots.roots()
    nodes = [node for node, pinned in structure.pins if bool(torch.isin(roots[slots], roots[pinned]).any())]
    if not nodes or any(node.op == "output" for node in nodes):
        return None
    if nodes[0].op == "call_module":
        name = str(nodes[0].target)
        return f"{type(root.get_submodule(name)).__name__} {_own(name)!r} needs them all"
    return f"`{getattr(nodes[0].target, '__name__', nodes[0].target)}` needs them all"


def _not_followed(layer: nn.Module) -> str:
    if linear_map(layer) is None:
        return "its posterior or prior is not one that can be cut"
    return "it has a hook, or is called with more than its input"


def _inside(name: str, outer: nn.Module) -> str:
    place = f"it is inside {type(outer).__name__} {_own(name)!r}"
    return (
        f"{place}, which loses only heads without influence"
        if isinstance(outer, MultiheadAttention)
        else f"{place}, left whole"
    )


def _own(name: str) -> str:
    """The name in the network of the user, which is the first child of the traced one."""
    return name.removeprefix("0").removeprefix(".")
