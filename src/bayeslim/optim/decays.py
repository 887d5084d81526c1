"""The weight decay that an optimiser gives each parameter."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bayeslim.optim.groups import PrunableLayer

__all__ = ["check_decays", "decays_of"]


def decays_of(optimizer: torch.optim.Optimizer) -> dict[int, float]:
    """The weight decay of every parameter by its id."""
    return {id(p): group.get("weight_decay", 0.0) for group in optimizer.param_groups for p in group["params"]}


def check_decays(optimizer: torch.optim.Optimizer, layers: Iterable[PrunableLayer], spike_decay: float) -> None:
    """Raise ValueError unless the optimiser moves the weight of every layer and decays it less than the spike does.

    Args:
        optimizer: to look at.
        layers: to prune.
        spike_decay: the weight decay in the spike.
    """
    decays = decays_of(optimizer)
    for layer in layers:
        if id(layer.weight) not in decays:
            raise ValueError(f"`optimizer` does not hold the weight of layer {layer.name!r}: add it, or use `where`")
        if decays[id(layer.weight)] > spike_decay:
            raise ValueError(
                f"`spike_decay`={spike_decay} must exceed the optimiser's weight_decay, which is "
                f"{decays[id(layer.weight)]} for layer {layer.name!r}"
            )
