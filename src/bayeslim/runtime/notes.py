"""What is remembered about a network: the only thing that is left on modules of others."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["note_", "noted"]

NOTES = "_bayeslim_notes"
"""The one attribute. A table beside the networks would not reach their copies and pickles, which must know it too."""


def note_(network: nn.Module, kind: str, value: Any) -> None:
    """Remember `value` about `network`, in place of what was known of this kind.

    It is no part of the tree of modules: `state_dict`, `parameters` and `nn.Sequential` do not see it.

    Example:
        >>> note_(model, "likelihood", bl.Categorical())
        >>> noted(copy.deepcopy(model), "likelihood")
        Categorical()
    """
    vars(network)[NOTES] = vars(network).get(NOTES, {}) | {kind: value}  # anew, as a shallow copy has the same one


def noted(network: nn.Module, kind: str) -> Any:
    """What was noted last about `network`, or about the one that it is a copy of; None if nothing was."""
    return vars(network).get(NOTES, {}).get(kind)
