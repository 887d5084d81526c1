"""What is remembered about a network, without anything being written on it."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from bayeslim.layers.base import BayesLayer

__all__ = ["copy_notes_", "note_", "noted"]

_NOTES: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def note_(network: nn.Module, kind: str, value: Any) -> None:
    """Remember `value` about `network`, in place of what was known of this kind.

    The first Bayesian layer inside keeps it too, under its own place in the network, so that copies and pickles of the
    network know it. Those of a network without Bayesian layers do not.

    Example:
        >>> note_(model, "likelihood", bl.Categorical())
        >>> noted(copy.deepcopy(model), "likelihood")
        Categorical()
    """
    _NOTES.setdefault(network, {})[kind] = value
    layer, place = _keeper(network)
    if layer is not None:
        vars(layer)["_notes"] = vars(layer).get("_notes", {}) | {(kind, *place): value}


def noted(network: nn.Module, kind: str) -> Any:
    """What was noted last about `network`, or about the one that it is a copy of; None if nothing was."""
    own = _NOTES.get(network, {})
    if kind in own:
        return own[kind]
    layer, place = _keeper(network)
    return None if layer is None else vars(layer).get("_notes", {}).get((kind, *place))


def copy_notes_(network: nn.Module, copied: nn.Module, memo: dict[int, Any]) -> None:
    """Let a deep copy know all that is known about a network and its parts.

    Args:
        network: what was copied.
        copied: its copy.
        memo: that of `copy.deepcopy`.
    """
    for old, new in zip(network.modules(), copied.modules(), strict=True):
        if old in _NOTES:
            _NOTES[new] = copy.deepcopy(_NOTES[old], memo)


def _keeper(network: nn.Module) -> tuple[BayesLayer | None, tuple[str, int]]:
    """The first Bayesian layer, with its name in this network and their number, which parts of it do not share."""
    layers = [(name, part) for name, part in network.named_modules() if isinstance(part, BayesLayer)]
    return (layers[0][1], (layers[0][0], len(layers))) if layers else (None, ("", 0))
