"""The state of a training run on disk, complete after every epoch."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.likelihoods.base import Likelihood
from bayeslim.saving import check_state, load_state_, prefixed, unprefixed
from bayeslim.storage import DamagedFile, copy_atomically, read_tensors, write_tensors
from bayeslim.training.history import History

__all__ = ["RunState", "checkpoint_file", "load_checkpoint_", "previous_file", "save_checkpoint"]


@dataclass
class RunState:
    """What a run needs besides the network and the optimiser to go on as if never stopped."""

    seed: int
    epoch: int = 0
    """Epochs done."""
    history: History = field(default_factory=History)
    best_score: float | None = None
    best_epoch: int = 0
    best: dict[str, Tensor] = field(default_factory=dict)
    """The network's and the likelihood's state at the best validation score, for early stopping."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings that a resumed run must share."""
    scaler: dict[str, Any] = field(default_factory=dict)
    """State of the gradient scaler under float16."""


def checkpoint_file(folder: Path) -> Path:
    """Where the checkpoint of a run lies."""
    return folder / "checkpoint.safetensors"


def previous_file(folder: Path) -> Path:
    """Where the checkpoint of the epoch before lies, for the case that the last one gets damaged."""
    return folder / "checkpoint.previous.safetensors"


def save_checkpoint(
    folder: Path, model: nn.Module, likelihood: Likelihood, optimizer: torch.optim.Optimizer, state: RunState
) -> None:
    """Write checkpoint and history to `folder`, each atomically, the checkpoint first; keep the one before it."""
    tensors = prefixed("model", model.state_dict()) | prefixed("likelihood", likelihood.state_dict())
    tensors |= prefixed("best", state.best)
    scalars: dict[str, dict[str, Any]] = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                scalars.setdefault(str(index), {})[name] = value
    facts = {
        "kind": "checkpoint",
        "seed": state.seed,
        "epoch": state.epoch,
        "history": state.history.records,
        "best_score": state.best_score,
        "best_epoch": state.best_epoch,
        "settings": state.settings,
        "scaler": state.scaler,
        "trained": _trained(model, likelihood, optimizer),
        "optimizer": scalars,
    }
    if checkpoint_file(folder).exists():
        copy_atomically(checkpoint_file(folder), previous_file(folder))
    write_tensors(checkpoint_file(folder), tensors, facts)
    state.history.write(folder / "history.jsonl")


def load_checkpoint_(
    folder: Path,
    model: nn.Module,
    likelihood: Likelihood,
    optimizer: torch.optim.Optimizer,
    wanted: Mapping[str, Any],
) -> RunState:
    """Restore network, likelihood and optimiser in place and return the run's state.

    Args:
        folder: where the run lies.
        model: the network.
        likelihood: its likelihood.
        optimizer: its optimiser.
        wanted: settings, and perhaps the seed, that the run must have been started with.

    Raises:
        FileNotFoundError: if there is no checkpoint.
        ValueError: if it is damaged and the one before it too, is something else, was started with other settings,
            trained other parameters or belongs to another network; nothing is changed then.

    Warns:
        RuntimeWarning: if the last checkpoint is damaged, and the one before it is used.
    """
    file, tensors, facts = _newest_readable(folder)
    if facts.get("kind") != "checkpoint":
        raise ValueError(f"{file} holds {facts.get('kind')!r}, not a training checkpoint")
    stored = facts["settings"] | {"seed": facts["seed"]}
    wrong = [f"{name}={stored.get(name)}, now {value}" for name, value in wanted.items() if stored.get(name) != value]
    if wrong:
        raise ValueError(f"the run in {folder} was started differently: {'; '.join(wrong)}")
    check_state(model, unprefixed("model", tensors), file)
    check_state(likelihood, unprefixed("likelihood", tensors), file)
    then, now = facts["trained"], _trained(model, likelihood, optimizer)
    if then != now:  # the optimiser knows its parameters by number alone
        changed = sorted(set(then) ^ set(now))[:3] or ["their order"]
        raise ValueError(f"the run in {folder} trained other parameters ({', '.join(changed)}): freeze the same ones")
    load_state_(model, unprefixed("model", tensors), file)
    load_state_(likelihood, unprefixed("likelihood", tensors), file)
    entries: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in facts["optimizer"].items()}
    for name, tensor in unprefixed("optimizer", tensors).items():
        index, key = name.split(".", 1)
        entries.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": entries})
    return RunState(
        seed=facts["seed"],
        epoch=facts["epoch"],
        history=History(facts["history"]),
        best_score=facts["best_score"],
        best_epoch=facts["best_epoch"],
        best=unprefixed("best", tensors),
        settings=facts["settings"],
        scaler=facts["scaler"],
    )


def _newest_readable(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """The last checkpoint, or the one before it where that is damaged."""
    last, before = checkpoint_file(folder), previous_file(folder)
    try:
        return last, *read_tensors(last)
    except DamagedFile as error:
        try:
            content = read_tensors(before)
        except (FileNotFoundError, ValueError):
            raise error from None
        message = f"{error}. Going on from the epoch before, which {before.name} holds"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return before, *content


def _trained(model: nn.Module, likelihood: Likelihood, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the trained parameters, in the optimiser's order."""
    names = {id(parameter): name for part in (model, likelihood) for name, parameter in part.named_parameters()}
    return [names.get(id(parameter), "unnamed") for group in optimizer.param_groups for parameter in group["params"]]
