"""What was given for a network and is none: an error that says what to pass instead."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import nn

from bayeslim.checks.text import one_line

__all__ = ["check_network"]


def check_network(model: object, action: str, name: str = "model") -> None:
    """Raise TypeError unless `model` is a network, with what to do about the thing that it is.

    An object that has a network says where by a text of its own, `network_advice`, as `bl.Snapshots` does.

    Args:
        model: what was given for a network.
        action: what is done to it, for the message.
        name: of the argument.

    Example:
        >>> check_network(nn.Linear(2, 1), "prune")
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`{name}` must be a network (nn.Module), got {_advised(model, action)}")


def _advised(model: object, action: str) -> str:
    """What was given, and what to do with it."""
    kind = type(model).__name__
    own = getattr(model, "network_advice", None)
    if isinstance(model, type):
        return f"the class {model.__name__}: pass an instance of it, {model.__name__}(...)"
    if isinstance(own, str):
        return f"{kind}: {action} {own}"
    if isinstance(model, str | os.PathLike):
        path = one_line(repr(os.fspath(model)))
        return f"{kind} {path}: read the network first, bl.load(path), and {action} what that returns"
    if isinstance(model, Mapping):
        return (
            f"{kind} of {len(model)} entries: make the network, give it a state by network.load_state_dict(state), and "
            f"{action} the network"
        )
    if isinstance(model, torch.optim.Optimizer):
        return f"the optimiser {kind}: {action} the network whose parameters it changes"
    if isinstance(model, list | tuple) and any(isinstance(part, nn.Module) for part in model):
        return (
            f"{kind} of {len(model)}: {action} one network at a time; bl.predict averages over several of one "
            "architecture as bl.Snapshots(networks[0], [network.state_dict() for network in networks])"
        )
    return f"{kind}: pass one, e.g. bl.mlp([4, 50, 3])"
