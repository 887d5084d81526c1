"""Exchange modules inside a network."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from bayeslim.layers.base import BayesLayer
from bayeslim.runtime.notes import note_, noted

__all__ = ["copied", "nested_tensors_", "replaced", "sources", "topmost", "with_hooks"]

Network = TypeVar("Network", bound=nn.Module)

HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
)
PACKS = "packs padded batches"
"""A note about an encoder: what it did before."""


def copied(model: Network) -> Network:
    """A deep copy of a network, also of one that keeps an activation on itself.

    Such a tensor hangs on the graph of the pass that computed it, and `copy.deepcopy` refuses it: here it is copied
    without its graph.

    Example:
        >>> twin = copied(model)
    """
    kept = [leaf for module in model.modules() for leaf in tree_leaves(vars(module)) if isinstance(leaf, Tensor)]
    return copy.deepcopy(model, {id(tensor): tensor.detach().clone() for tensor in kept if not tensor.is_leaf})


def topmost(model: nn.Module, wanted: Callable[[str, nn.Module], bool]) -> list[tuple[str, nn.Module]]:
    """Modules that are wanted and not inside a wanted one, under every name they have."""
    found: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules(remove_duplicate=False):
        inside = any(not outer or name.startswith(f"{outer}.") for outer, _ in found)
        if not inside and wanted(name, module):
            found.append((name, module))
    return found


def with_hooks(new: nn.Module, old: nn.Module) -> nn.Module:
    """Return `new`, which has no hooks of its own, with those of `old`.

    They are the same dictionaries, so the handles that registration returned still remove them.
    """
    for name in HOOKS:
        setattr(new, name, getattr(old, name))
    return new


def sources(layer: Any, plain: Any) -> Iterable[tuple[BayesLayer, Tensor, Tensor | None]]:
    """The Bayesian layers that `layer` is or holds, each with the weight and bias of `plain` it stands for."""
    if isinstance(layer, BayesLayer):
        return [(layer, plain.weight, getattr(plain, "bias", None))]
    return layer.sources(plain)


def nested_tensors_(encoder: nn.TransformerEncoder, allowed: bool) -> None:
    """Forbid `encoder` to pack padded batches for its fused layers, or let it again where it did before."""
    before = noted(encoder, PACKS)
    if not allowed:
        note_(encoder, PACKS, encoder.use_nested_tensor if before is None else before)
        encoder.use_nested_tensor = False
    elif before is not None:
        note_(encoder, PACKS, None)
        encoder.use_nested_tensor = before


def replaced(model: nn.Module, replacements: Mapping[int, nn.Module]) -> nn.Module:
    """Put the replacements in place of the modules with those identities, wherever they stand."""
    if id(model) in replacements:
        return replacements[id(model)]
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if id(module) in replacements:
            model.set_submodule(name, replacements[id(module)])
    return model
