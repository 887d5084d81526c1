"""The weight decay that an optimiser gives each parameter, and how to add to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from bayeslim.optim.groups import PrunableLayer

__all__ = ["check_decays", "groups_of", "surplus_decay"]

DECOUPLED = (torch.optim.Adafactor, torch.optim.Muon)
"""Optimisers of torch that decay weights apart from the gradient without an option that says so."""


def groups_of(optimizer: torch.optim.Optimizer) -> dict[int, dict[str, Any]]:
    """The parameter group of every parameter by its id."""
    return {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}


def surplus_decay(optimizer: torch.optim.Optimizer, group: dict[str, Any], decay: float) -> tuple[bool, float | Tensor]:
    """How to make an optimiser decay weights `w` by `decay` instead of the `weight_decay` of their group.

    Args:
        optimizer: about to take a step.
        group: one of its parameter groups.
        decay: the weight decay that is wanted.

    Returns:
        Whether the optimiser decays apart from the gradient, and a factor: add `factor * w` to the weights if it does
        (right to first order in `lr`), to the gradient if not.
    """
    surplus = decay - group.get("weight_decay", 0.0)
    if group.get("decoupled_weight_decay", False) or isinstance(optimizer, DECOUPLED):
        skipped = getattr(optimizer, "found_inf", None)  # set by a torch.amp.GradScaler, as `grad_scale` is
        return True, -group["lr"] * surplus * (1.0 if skipped is None else 1 - skipped)
    scale = getattr(optimizer, "grad_scale", None)
    return False, (-surplus if group.get("maximize") else surplus) * (1.0 if scale is None else scale)


def check_decays(optimizer: torch.optim.Optimizer, layers: Iterable[PrunableLayer], spike_decay: float) -> None:
    """Raise ValueError unless the optimiser moves the weight of every layer and decays it less than the spike does.

    Args:
        optimizer: to look at.
        layers: to prune.
        spike_decay: the weight decay in the spike.
    """
    groups = groups_of(optimizer)
    for layer in layers:
        if id(layer.weight) not in groups:
            raise ValueError(f"`optimizer` does not hold the weight of layer {layer.name!r}: add it, or use `where`")
        if (own := groups[id(layer.weight)].get("weight_decay", 0.0)) > spike_decay:
            raise ValueError(
                f"`spike_decay`={spike_decay} must exceed the optimiser's weight_decay, which is {own} for layer "
                f"{layer.name!r}"
            )
