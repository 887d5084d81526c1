"""Experiments that run each of their methods with each of their seeds: what is left to do, and all of it as one record.

See `experiment` for those that also keep checkpoints and data of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import torch

from bayeslim_papers.record import Record, begun, check_joinable, united

__all__ = ["all_runs", "merged"]

CHOICES = ("methods", "seeds")
"""Settings in which the records of one experiment may differ."""


class Methods(Protocol):
    """Settings, a dataclass."""

    @property
    def methods(self) -> tuple[str, ...]:
        """By name."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of every method."""
        ...


def all_runs(
    config: Methods,
    paper: dict[str, Any],
    device: torch.device,
    measured: Callable[[str, int], dict[str, Any]],
    *,
    earlier: Record | None = None,
    save: Callable[[Record], None] = lambda record: None,
) -> Record:
    """The record of every method and seed, all seeds of a method before the next.

    Args:
        config: settings.
        paper: what the paper says.
        device: where it runs.
        measured: trains and scores a method with a seed.
        earlier: a record with the same settings, whose runs are kept and not computed again.
        save: called with the record after every run.

    Raises:
        ValueError: if `earlier` was made with other settings.

    Example:
        >>> record = all_runs(Config(), PAPER, torch.device("cpu"), lambda method, seed: {"accuracy": 97.0})
    """
    facts = {"config": asdict(config), "paper": paper}  # pyright: ignore[reportArgumentType]
    record = begun(facts, device, earlier, merged)
    done = {(one["method"], one["seed"]) for one in record["runs"]}
    for method, seed in itertools.product(config.methods, config.seeds):
        if (method, seed) not in done:
            record["runs"].append({"method": method, "seed": seed} | measured(method, seed))
            save(record)
    return record


def merged(records: Sequence[Record], choices: Collection[str] = CHOICES) -> Record:
    """One record out of several; a method and seed that is in two counts once, as in the last of them.

    Args:
        records: of one experiment.
        choices: settings in which they may differ.

    Raises:
        ValueError: if their settings differ in more than that.

    Example:
        >>> merged([json.loads(Path(name).read_text()) for name in ("sgd.json", "vi.json")])
    """
    first, *others = records
    for other in others:
        check_joinable(first["config"], other["config"], choices)
    config = first["config"] | united([record["config"] for record in records], choices)
    runs = {(run["method"], run["seed"]): run for record in records for run in record["runs"]}
    return first | {"config": config, "runs": list(runs.values())}
