"""The state of a training run on disk, complete after every epoch.

The last checkpoint is `checkpoint.safetensors`, the one before it `checkpoint.previous.safetensors`, the one before
that `checkpoint.previous-2.safetensors`, and so on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.divergence import is_sharded
from bayeslim.likelihoods.base import Likelihood
from bayeslim.saving import check_state, load_state_, prefixed, unprefixed
from bayeslim.storage import copy_atomically, read_tensors, remove_leftovers, write_tensors
from bayeslim.training.checkpoint_checks import PER_WEIGHT, check_facts, optimizer_entries, refuse_differences
from bayeslim.training.history import History
from bayeslim.training.ranks import join
from bayeslim.training.sharding import sharded_as, whole

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
    run: str | None = None
    """Tells this run from all others, also after it was resumed; None in checkpoints of old."""


def checkpoint_file(folder: Path) -> Path:
    """Where the checkpoint of a run lies."""
    return folder / "checkpoint.safetensors"


def previous_file(folder: Path, back: int = 1) -> Path:
    """Where an earlier checkpoint lies, for the case that the last one gets damaged.

    Args:
        folder: of the run.
        back: 1 for the one before the last, 2 for the one before that, ...
    """
    return folder / f"checkpoint.previous{'' if back == 1 else f'-{back}'}.safetensors"


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    likelihood: Likelihood,
    optimizer: torch.optim.Optimizer,
    state: RunState,
    keep: int = 2,
) -> None:
    """Write checkpoint and history to `folder`, each atomically, the checkpoint first; keep those before it.

    A sharded network is gathered by rank 0, to which all others must bring their shards by the same call: the
    checkpoint is that of a single process. A write that fails, as on a full disk, leaves the last checkpoint as it
    was. What a killed run left half-written is removed.

    Args:
        folder: of the run; made if needed.
        model: the network.
        likelihood: its likelihood.
        optimizer: its optimiser.
        state: of the run.
        keep: checkpoints that are kept, this one included.

    Raises:
        OSError: if the disk is full or the folder cannot be written.
        ValueError: for a `keep` below 1.

    Example:
        >>> save_checkpoint(folder, model, likelihood, optimizer, RunState(seed=0))
    """
    (keep,) = check_counts(keep=keep)
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
        "run": state.run,
        "trained": _trained(model, likelihood, optimizer),
        "optimizer": scalars,
    }
    if is_sharded(model):
        tensors = whole(tensors)
        if not join().first:
            return
    history = folder / "history.jsonl"
    _move_back(folder, keep)
    for file in (checkpoint_file(folder), history):
        remove_leftovers(file)
    write_tensors(checkpoint_file(folder), tensors, facts)
    state.history.write(history)


def _move_back(folder: Path, keep: int) -> None:
    """Make room for a new checkpoint: each of the old ones becomes one older, and those past `keep` go."""
    files = [checkpoint_file(folder), *(previous_file(folder, back) for back in range(1, keep))]
    for newer, older in reversed(list(pairwise(files))):
        remove_leftovers(older)
        if newer.exists():
            copy_atomically(newer, older)
    back = keep
    while (past := previous_file(folder, back)).exists():
        past.unlink()
        back += 1


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
        ValueError: if it is damaged and those before it too, is something else, was started with other settings,
            trained other parameters or belongs to another network; nothing is changed then.

    Warns:
        RuntimeWarning: if the last checkpoint is damaged, and one before it is used.
    """
    file, tensors, facts = _newest_readable(folder)
    if facts.get("kind") != "checkpoint":
        raise ValueError(f"{file} holds {facts.get('kind')!r}, not a training checkpoint")
    check_facts(facts, file)
    stored = facts["settings"] | {"seed": facts["seed"]}
    chosen = {"chosen": wanted.get("chosen", {})}
    refuse_differences(stored, {name: value for name, value in wanted.items() if name not in chosen}, folder)
    check_state(model, unprefixed("model", tensors), file)
    check_state(likelihood, unprefixed("likelihood", tensors), file)
    refuse_differences(stored, chosen, folder)  # of what has the same tensors
    then, now = facts["trained"], _trained(model, likelihood, optimizer)
    if then != now:  # the optimiser knows its parameters by number alone
        changed = sorted(set(then) ^ set(now))[:3] or ["their order"]
        raise ValueError(f"the run in {folder} trained other parameters ({', '.join(changed)}): freeze the same ones")
    best = unprefixed("best", tensors)
    if best:
        check_state(model, unprefixed("model", best), file)
        check_state(likelihood, unprefixed("likelihood", best), file)
    entries = optimizer_entries(facts["optimizer"], unprefixed("optimizer", tensors), optimizer, file)
    own = model.state_dict()
    load_state_(model, sharded_as(own, unprefixed("model", tensors)), file)
    load_state_(likelihood, unprefixed("likelihood", tensors), file)
    optimizer.load_state_dict(optimizer.state_dict() | {"state": _sharded_entries(entries, optimizer)})
    return RunState(
        seed=facts["seed"],
        epoch=facts["epoch"],
        history=History(facts["history"]),
        best_score=facts["best_score"],
        best_epoch=facts["best_epoch"],
        best=sharded_as(prefixed("model", own), best),
        settings=facts["settings"],
        scaler=facts["scaler"],
        run=facts.get("run"),
    )


def _sharded_entries(
    entries: Mapping[int, dict[str, Any]], optimizer: torch.optim.Optimizer
) -> dict[int, dict[str, Any]]:
    """The optimiser's state, spread as the parameters are that it belongs to."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        number: sharded_as({name: parameters[number] for name in entry if name in PER_WEIGHT}, entry)
        for number, entry in entries.items()
    }


def _newest_readable(folder: Path) -> tuple[Path, dict[str, Tensor], dict[str, Any]]:
    """The last checkpoint, or the newest one before it that is whole where that is damaged."""
    last = checkpoint_file(folder)
    try:
        return last, *read_tensors(last)
    except ValueError as error:
        for back in count(1):
            before = previous_file(folder, back)
            try:
                content = read_tensors(before)
            except FileNotFoundError:
                raise error from None
            except ValueError:
                continue
            message = f"{error}. Going on from an earlier epoch, which {before.name} holds"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
            return before, *content
        raise


def _trained(model: nn.Module, likelihood: Likelihood, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the trained parameters, in the optimiser's order."""
    names = {id(parameter): name for part in (model, likelihood) for name, parameter in part.named_parameters()}
    return [names.get(id(parameter), "unnamed") for group in optimizer.param_groups for parameter in group["params"]]
