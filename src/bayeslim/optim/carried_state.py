"""Let an optimiser's `state_dict` carry the state of something that stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["carry_state_"]


def carry_state_(
    optimizer: torch.optim.Optimizer,
    parameter: nn.Parameter,
    prefix: str,
    save: Callable[[], dict[str, Any]],
    load: Callable[[dict[str, Any]], None],
) -> None:
    """Add to what the optimiser stores of `parameter`, for checkpoints that hold network and optimiser alone.

    Args:
        optimizer: its `state_dict` gets the state, its `load_state_dict` takes it out again.
        parameter: one that the optimiser holds.
        prefix: begins the names of the state in that of the optimiser, which has no such names of its own.
        save: gives the state: numbers by name, and under "tensors" tensors by name.
        load: restores it.

    Example:
        >>> carry_state_(optimizer, model[0].weight, "masks.", masks.state_dict, masks.load_state_dict)
    """

    def add(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        number = next(i for i, p in enumerate(parameters) if p is parameter)
        state = save()
        named = {f"{prefix}{name}": value for name, value in (state.pop("tensors") | state).items()}
        state_dict["state"] = state_dict["state"] | {number: state_dict["state"].get(number, {}) | named}

    def take(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        rest: dict[int, dict[str, Any]] = {}
        for number, entry in state_dict["state"].items():
            found = {name.removeprefix(prefix): value for name, value in entry.items() if name.startswith(prefix)}
            if found:
                tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
                load({"tensors": tensors} | {name: found[name] for name in found.keys() - tensors.keys()})
            if len(found) < len(entry):  # Adam takes any state of a parameter for a complete one
                rest[number] = {name: value for name, value in entry.items() if not name.startswith(prefix)}
        return state_dict | {"state": rest}

    optimizer.register_state_dict_post_hook(add)
    optimizer.register_load_state_dict_pre_hook(take)
