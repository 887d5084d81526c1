"""What a checkpoint says is checked before it is believed: a checksum finds damage, not malice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.architecture import ESTIMATORS, LIKELIHOODS, POSTERIORS, PRIORS, describe_member
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood
from bayeslim.masks import unmasked
from bayeslim.runtime.seeds import check_seed

__all__ = ["PER_WEIGHT", "check_facts", "describe_settings", "optimizer_entries", "refuse_differences"]

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
            "settings": isinstance(facts["settings"].get("chosen", {}), dict),  # ditto
            "scaler": facts["scaler"].keys() in (set(), SCALER) and all(map(_is_number, facts["scaler"].values())),
        }
        wrong = [name for name, right in parts.items() if not right]
    if wrong:
        raise ValueError(
            f"{file} is not a usable checkpoint: it lacks a valid {', '.join(wrong)}; restore it from a copy"
        )
    check_seed(facts["seed"])


def describe_settings(model: nn.Module, likelihood: Likelihood) -> dict[str, list[Any]]:
    """The types and settings that a user chose for a run, by what they are; those of one's own classes by name.

    Masks and tensors are left out: they change in a run, and lie in its state.

    Example:
        >>> describe_settings(bl.layers.Linear(2, 1), bl.Categorical())["weight prior"]
        ['Normal', {'mean': 0.0, 'std': 1.0}]
    """
    found = {"likelihood": describe_member(likelihood, LIKELIHOODS)}
    for name, layer in model.named_modules():
        if isinstance(layer, BayesLayer):
            place = f"{name} " if name else ""
            found[f"{place}estimator"] = describe_member(layer.estimator, ESTIMATORS)
            for part, (posterior, prior) in zip(("weight", "bias"), layer.posteriors_and_priors(), strict=False):
                found[f"{place}{part} posterior"] = describe_member(unmasked(posterior), POSTERIORS)
                found[f"{place}{part} prior"] = describe_member(prior, PRIORS)
    return found


def refuse_differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    """Raise ValueError if a run would go on otherwise than it was started.

    Args:
        stored: settings of the checkpoint; what old ones do not tell is not compared.
        wanted: those of now.
        folder: of the run, for the message.
    """
    plain = [name for name in wanted if name != "chosen" and name in stored and stored[name] != wanted[name]]
    then, now = (settings.get("chosen", {}) for settings in (stored, wanted))
    chosen = [name for name in now if name in then and _differ(then[name], now[name])]
    wrong = [f"{name}={str(stored[name])[:80]}, now {wanted[name]}" for name in plain]
    wrong += [f"{name} {_shown(then[name])}, now {_shown(now[name])}" for name in chosen]
    if wrong:
        more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ValueError(
            f"the run in {folder} was started differently: {'; '.join(wrong[:3])}{more}. Go on with what it was "
            "started with, or choose another folder"
        )


def _differ(then: Any, now: list[Any]) -> bool:
    """Whether type or settings differ; settings that could not be written are not compared."""
    unknown = now[1] is None and isinstance(then, list)
    return then[:1] != now[:1] if unknown else then != now


def _shown(member: Any) -> str:
    """`Normal(mean=0.0, std=1.0)` for what `describe_settings` wrote."""
    match member:
        case [str(name), {**settings}]:
            return f"{name.removeprefix('own.')}({', '.join(f'{key}={value}' for key, value in settings.items())})"
        case [str(name), None]:
            return name.removeprefix("own.")
        case _:
            return str(member)[:80]


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
