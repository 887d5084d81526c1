"""Make a pruned network physically smaller, with the same outputs.

torch-pruning (MIT) solves a neighbouring problem: it chooses coupled groups of channels of torch's own layers by
importance and removes them, and the network has changed. Here the choice is made already, weight by weight, and
nothing may change: units are removed if the masks leave them without influence or without input, a constant that they
gave moves into the next bias, and what is cut are posteriors with their priors, not weights. Of torch-pruning only the
tracing of dependencies would be left, which torch.fx does.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bayeslim.checks.networks import check_network
from bayeslim.estimators import mean_only
from bayeslim.layers import MultiheadAttention
from bayeslim.likelihoods.base import remember_likelihood_, remembered_likelihood
from bayeslim.predictive.inputs import as_tensor, device_of, float_type_of
from bayeslim.pruning.cutting import Cut, cut_layer_, cut_norm_
from bayeslim.pruning.heads import cut_heads_
from bayeslim.pruning.staying import staying_units
from bayeslim.pruning.structure import Reading, Structure
from bayeslim.pruning.tracing import attributes_read, shapes_of, traced
from bayeslim.select import Select
from bayeslim.surgery import copied
from bayeslim.using import using

__all__ = ["compact"]

SELECT_GAIN = 16
"""Multiply-adds saved per element moved from which a `Select` in front of a layer pays.

Measured on one CPU core at batch 1000: 64 wins 25 to 45 %, 16 breaks even, 6 loses."""


@torch.no_grad()
def compact(model: nn.Module, example: Tensor | np.ndarray, *, fold: Literal["mean", "exact"] = "mean") -> nn.Module:
    """A smaller Bayesian network with the outputs of a pruned one.

    Removed are hidden units, channels and attention heads that no output depends on because all their outgoing
    weights are pruned, and those that do not depend on the input because all their incoming weights are: these give
    a constant (their bias through normalisation and activation), which goes into the bias of the next layer. Input
    features of a layer that cannot be removed at their source, such as those of the network, are left out by a `Select`
    in front of it where that saves work. The shapes of the network's input and output stay, and so do estimators,
    priors, types, devices, training modes and the likelihood. Masks without a zero disappear.

    Units are followed through linear layers and convolutions (Bayesian and plain), batch normalisation, activations,
    dropout, pooling, flattening, sums, products and concatenation. Any other operation, such as LayerNorm, keeps all
    units it sees. Grouped convolutions lose whole groups only. A unit behind a sum stays if any operand needs it.

    Args:
        model: network with masks (`prune_`), or with plain layers some of whose weights are exactly zero, as
            `SpikeAndSlab` leaves them; not changed.
        example: an input, a small batch, in any float type. The result is exact for inputs of this shape, whatever
            the batch size.
        fold: "mean" keeps `mean_only` outputs and drops the spread that a constant `c != 0` had through the weight
            it met, `c^2 Var[w]`, and that of its own bias; "exact" keeps all units for which that is not zero, so
            that mean and variance of the output are those of `model`.

    Returns:
        The new network, of the same class. A layer that has a `Select` is an `nn.Sequential` of both.

    Raises:
        ValueError: if the network cannot be traced or does not run on `example`.
        RuntimeError: if the outputs for `example` differ, which they do not for networks that torch.fx can trace.

    Warns:
        UserWarning: if nothing was removed although whole units are pruned: which ones stay, and why.

    Example:
        >>> prune_(model, threshold=3.0)
        >>> small = compact(model, x[:1])
    """
    check_network(model, "compact")
    if fold not in ("mean", "exact"):
        raise ValueError(f"`fold` must be 'mean' or 'exact', got {fold!r}")
    if not isinstance(example, Tensor | np.ndarray):
        raise ValueError(f"`example` must be a tensor or array that the network takes, got {type(example).__name__}")
    x = as_tensor("example", example, float_type_of(model)).to(device_of(model))
    root = nn.Sequential(copied(model))
    modes = {module: module.training for module in root.modules()}
    root.eval()
    expected = [_outputs(root, x) for _ in range(2)]
    with using(root, mean_only):
        with attributes_read(root) as read:
            graph = traced(root)
        structure = Structure(root, graph, shapes_of(root, graph, x), fold == "exact", read)
    staying = staying_units(root, graph, structure)
    for name in structure.attentions:
        attention = root.get_submodule(name)
        assert isinstance(attention, MultiheadAttention)
        cut_heads_(attention, fold == "exact")
    _cut(root, structure, read)
    _check(root, x, expected)
    if staying and _size(root) == _size(model):
        warnings.warn(f"no unit could be removed. {_listed(staying)}", stacklevel=3)
    result = root[0]
    for module in result.modules():
        module.training = modes.get(module, model.training)
    likelihood = remembered_likelihood(model)
    if likelihood is not None and remembered_likelihood(result) is None:
        remember_likelihood_(result, copy.deepcopy(likelihood))
    return result


def _cut(root: nn.Module, structure: Structure, read: Mapping[nn.Module, set[str]]) -> None:
    """Cut every layer and normalisation to the slots that are needed."""
    roots, needed = structure.slots.roots(), structure.needed()
    kept = needed.clone()
    tensors = [*structure.tensors, *(reading.inputs for reading in structure.readings)]
    for tensor in tensors:  # torch has no convolution without channels: one stays as a place holder
        if not bool(kept[roots[tensor.slots]].any()):
            kept[roots[tensor.slots[0]]] = True
    for name, channels in structure.norms:
        norm: Any = root.get_submodule(name)
        cut_norm_(norm, kept[roots[channels.slots]].nonzero()[:, 0])
    for reading in structure.readings:
        sides = [(kept[roots[part.slots]], needed[roots[part.slots]]) for part in (reading.inputs, reading.outputs)]
        if reading.map.groups > 1:
            _cut_groups(root.get_submodule(reading.name), reading, *sides[1])
        else:
            free = not read.get(root.get_submodule(reading.name)) and _may_be_wrapped(root, reading.name)
            _cut_reading(root, reading, *sides[0], *sides[1], free)


def _cut_groups(layer: nn.Module, reading: Reading, rows: Tensor, needed: Tensor) -> None:
    inputs = reading.map.inputs // reading.map.groups
    groups = int(rows.view(reading.map.groups, -1)[:, 0].sum())
    nothing = torch.zeros(reading.map.outputs, dtype=torch.float64)
    columns, silent = torch.arange(inputs), torch.zeros(inputs, dtype=torch.bool)
    cut_layer_(layer, Cut(rows.nonzero()[:, 0], columns, groups, nothing, ~needed, silent))


def _cut_reading(
    root: nn.Module,
    reading: Reading,
    columns: Tensor,
    columns_needed: Tensor,
    rows: Tensor,
    rows_needed: Tensor,
    may_be_wrapped: bool,
) -> None:
    layer = root.get_submodule(reading.name)
    columns_needed = columns_needed & reading.blocking[rows_needed].any(0)
    used = columns_needed.clone()
    if not bool(used.any()):  # a place holder, silent
        used[int(columns.nonzero()[0, 0])] = True
    saved = int((columns & ~used).sum()) * int(rows.sum()) * reading.map.kernel
    silent, select = columns & ~columns_needed, None
    if saved >= SELECT_GAIN * int(used.sum()) and may_be_wrapped:
        index = used[columns].nonzero()[:, 0].to(next(layer.parameters()).device)
        select = Select.of(index, -1 - reading.map.dimensions)
        silent, columns = used & ~columns_needed, used
    gone = ~columns | silent
    addition = reading.map.mean @ (reading.inputs.known() * gone)
    cut = Cut(rows.nonzero()[:, 0], columns.nonzero()[:, 0], 1, addition, ~rows_needed, silent)
    cut_layer_(layer, cut)
    if select is not None:
        root.set_submodule(reading.name, nn.Sequential(select, layer))


def _may_be_wrapped(root: nn.Module, name: str) -> bool:
    """Whether the parent of a layer only calls it; torch's own encoder layer, for one, reads its children's weights."""
    parent = root.get_submodule(name.rpartition(".")[0])
    return isinstance(parent, nn.Sequential) or not type(parent).__module__.startswith(("torch.", "bayeslim.layers"))


def _outputs(root: nn.Module, example: Tensor) -> list[Tensor]:
    """The tensors that the mean network gives."""
    try:
        with using(root, mean_only):
            return [leaf for leaf in tree_leaves(root(example)) if isinstance(leaf, Tensor)]
    except (RuntimeError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"the network does not run on `example` of shape {tuple(example.shape)}: {error}") from error


def _check(root: nn.Module, x: Tensor, expected: list[list[Tensor]]) -> None:
    """An error if the mean network no longer gives what it gave, where it gave the same twice."""
    reason = (
        "the network does something torch.fx does not see, such as writing into a tensor that is used again; "
        "compact its parts one by one"
    )
    try:
        found = _outputs(root, x)
    except ValueError as error:
        raise RuntimeError(
            f"the compacted network fails on `example` ({error.__cause__ or error}): {reason}"
        ) from error
    if _differ(*expected) is None and (difference := _differ(expected[0], found)) is not None:
        raise RuntimeError(f"the compacted network differs from `model` by {difference:.3g} on `example`: {reason}")


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _listed(staying: Mapping[str, str]) -> str:
    """The first layers that keep pruned units, for a message."""
    shown = "; ".join(f"{name!r} keeps {what}" for name, what in list(staying.items())[:3])
    more = f"; and {len(staying) - 3} more layers" if len(staying) > 3 else ""
    return f"Pruned whole and still there: {shown}{more}. docs/pruning.md lists what blocks shrinking"


def _differ(first: list[Tensor], second: list[Tensor]) -> float | None:
    """The largest difference, or None if it is within rounding."""
    if [part.shape for part in first] != [part.shape for part in second]:
        return float("inf")
    for one, other in zip(first, second, strict=True):
        if not one.is_floating_point():
            continue
        size = one.double().nan_to_num(0.0, 0.0, 0.0).abs().amax().item() if one.numel() else 0.0
        tolerance = 10 * torch.finfo(one.dtype).eps ** 0.5 * max(size, 1e-3)
        if not torch.allclose(one.double(), other.double(), rtol=0.0, atol=tolerance, equal_nan=True):
            return (one.double() - other.double()).abs().nan_to_num(float("inf")).max().item()
    return None
