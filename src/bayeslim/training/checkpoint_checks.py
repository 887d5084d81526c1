"""What a checkpoint says is checked before it is believed: a checksum finds damage, not malice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayeslim.randomness import check_seed

__all__ = ["PER_WEIGHT", "check_facts", "optimizer_entries"]

FACTS: dict[str, Any] = {
    "seed": int,
    "epoch": int,
    "history": list,
    "best_score": (float, int, type(None)),
    "best_epoch": int,
    "settings": dict,
    "scaler": dict,
    "trained": list,
    "optimizer": dict,
}
"""What a checkpoint holds besides tensors, and of which type."""

SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
"""The state of a gradient scaler, all of it numbers."""

PER_WEIGHT = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "rho", "velocity", "decay"}
"""Optimiser state of which fused kernels read one number per weight without a look at its length."""

ADAM = {"step", "exp_avg", "exp_avg_sq"}
"""Names in the state of Adam, all there or none."""


def check_facts(facts: Mapping[str, Any], file: Path) -> None:
    """Raise ValueError unless all facts are there and make sense.

    Args:
        facts: of a checkpoint.
        file: where they stand, for the message.
    """
    wrong = [name for name, kind in FACTS.items() if name not in facts or not isinstance(facts[name], kind)]
    if not wrong:
        parts = {
            "epoch": facts["epoch"] >= 0 and facts["best_epoch"] >= 0,
            "history": all(isinstance(record, dict) for record in facts["history"]),
            "trained": all(isinstance(name, str) for name in facts["trained"]),
            "run": isinstance(facts.get("run"), str | None),  # old ones have none
            "scaler": facts["scaler"].keys() in (set(), SCALER) and all(map(_is_number, facts["scaler"].values())),
        }
        wrong = [name for name, right in parts.items() if not right]
    if wrong:
        raise ValueError(
            f"{file} is not a usable checkpoint: it lacks a valid {', '.join(wrong)}; restore it from a copy"
        )
    check_seed(facts["seed"])


def optimizer_entries(
    scalars: Mapping[str, Any], tensors: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, file: Path
) -> dict[int, dict[str, Any]]:
    """The optimiser's state by number of the parameter.

    Args:
        scalars: its numbers, by number of the parameter and name.
        tensors: its tensors, by `number.name`.
        optimizer: the one it will be loaded into.
        file: where they stand, for the message.

    Raises:
        ValueError: if they do not fit the parameters: a fused step would read and write beyond their memory.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    problem = f"{file} does not fit the optimiser"
    entries: dict[int, dict[str, Any]] = {}
    for place, values in scalars.items():
        if not isinstance(values, dict) or not all(v is None or _is_number(v) for v in values.values()):
            raise ValueError(f"{problem}: its state {place[:40]!r} is not numbers")
        if lone := PER_WEIGHT & values.keys():
            raise ValueError(f"{problem}: {place}.{min(lone)} is a number, expected a tensor")
        entries[_number(place, len(parameters), problem)] = dict(values)
    for name, tensor in tensors.items():
        place, _, key = name.partition(".")
        number = _number(place, len(parameters), problem)
        shape = parameters[number].shape if key in PER_WEIGHT else torch.Size() if key == "step" else tensor.shape
        if tensor.shape != shape:
            raise ValueError(f"{problem}: {name} is {tuple(tensor.shape)}, expected {tuple(shape)}")
        entries.setdefault(number, {})[key] = tensor
    for number, entry in entries.items():
        own = {name for name in entry if "." not in name}  # others stand there for the masks of `SpikeAndSlab`
        if isinstance(optimizer, torch.optim.Adam) and own and (absent := ADAM - own):
            raise ValueError(f"{problem}: parameter {number} lacks its {', '.join(sorted(absent))}")
    return entries


def _number(place: str, count: int, problem: str) -> int:
    """The number of a parameter."""
    if not (place.isascii() and place.isdecimal() and len(place) < 10 and int(place) < count):
        raise ValueError(f"{problem}: there is no parameter {place[:40]!r}")
    return int(place)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)
