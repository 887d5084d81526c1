"""Experiments that train one network per variant and seed: their settings, and all runs as one record."""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from bayeslim_papers.record import Record, begun, check_joinable, united
from bayeslim_papers.training import Say, silent

__all__ = ["Experiment", "run"]


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment, and what it does with them; `run` makes the record."""

    name: ClassVar[str]
    kind: ClassVar[str]
    """Where a record has the name."""
    by: ClassVar[str]
    """Where a run has the name of its variant."""
    choices: ClassVar[tuple[str, ...]]
    """Settings that list which runs were made, seeds among them: results of one file may differ in them."""
    technical: ClassVar[tuple[str, ...]] = ()
    """Settings in which they may differ since they do not change what is found."""

    seeds: tuple[int, ...]

    @abstractmethod
    def load(self, root: Path | None, device: str) -> Any:
        """The data, whose `device` is where networks are trained."""

    @classmethod
    @abstractmethod
    def quick(cls, device: str) -> tuple[Self, Any]:
        """Settings and made-up data with which the whole experiment takes seconds."""

    @abstractmethod
    def variants(self) -> Mapping[str, Any]:
        """What is compared, by name, as `measured` takes it."""

    @abstractmethod
    def measured(
        self, variant: Any, /, seed: int, data: Any, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        """Train and score one network; the seconds that took are part of it.

        Args:
            variant: one of `variants`.
            seed: of the network, its training and its scores.
            data: of `load` or `quick`.
            folder: for checkpoints, from which an interrupted training goes on.
            say: told how far training is.

        Returns:
            What the record says of the run besides variant and seed.
        """

    @abstractmethod
    def headline(self, found: Mapping[str, Any]) -> str:
        """What is told of a finished run."""

    def facts(self, data: Any) -> dict[str, Any]:
        """What the record says besides device, version of torch and runs."""
        return {self.kind: self.name, "config": asdict(self)}

    def comparable(self) -> dict[str, Any]:
        """The settings that results of one file must have in common, as JSON has them."""
        free = (*self.choices, *self.technical)
        return json.loads(json.dumps({key: value for key, value in asdict(self).items() if key not in free}))

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """One record out of several that differ in `choices` and `technical` only; a run that is in two counts once.

        Raises:
            ValueError: if they are of different experiments or settings.

        Example:
            >>> Samplers.merged([json.loads(Path(name).read_text()) for name in ("seed0.json", "seed1.json")])
        """
        first, last = records[0], records[-1]
        for other in records[1:]:
            theirs, ours = (one["config"] | {cls.kind: one[cls.kind]} for one in (first, other))
            check_joinable(theirs, ours, (*cls.choices, *cls.technical))
        config = last["config"] | united([one["config"] for one in records], cls.choices)
        runs = {(run[cls.by], run["seed"]): run for one in records for run in one["runs"]}
        return last | {"config": config, "runs": list(runs.values())}


def run(
    experiment: Experiment,
    data: Any,
    *,
    earlier: Record | None = None,
    save: Callable[[Record], None] = lambda record: None,
    checkpoints: Path | None = None,
    say: Say = silent,
) -> Record:
    """Train and score every variant and seed, all variants of a seed before the next.

    Args:
        experiment: settings.
        data: on the device to use.
        earlier: a record with the same settings, whose runs are kept and not computed again.
        save: called with the record whenever it has grown.
        checkpoints: folder for the state of trainings under way.
        say: told what was found.

    Returns:
        A record for JSON.

    Raises:
        ValueError: if `earlier` was made with other settings.

    Example:
        >>> record = run(*Samplers.quick("cpu"))
    """
    record = begun(experiment.facts(data), data.device, earlier, experiment.merged)
    done = {(one[experiment.by], one["seed"]) for one in record["runs"]}
    for seed, (name, variant) in itertools.product(experiment.seeds, experiment.variants().items()):
        if (name, seed) in done:
            continue
        label = f"{experiment.name} {name} seed {seed}"
        folder = checkpoints and checkpoints / f"{experiment.name}-{name}-{seed}"
        found = experiment.measured(variant, seed, data, folder, lambda text, label=label: say(f"{label}: {text}"))
        record["runs"].append({experiment.by: name, "seed": seed} | found)
        say(f"{label}: {experiment.headline(found)} in {found['seconds']:.0f} s")
        save(record)
    return record
