"""Experiments: settings that know their data and how what they compare is measured; all runs as one record."""

from __future__ import annotations

import argparse
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from bayeslim_papers.record import Record, check_joinable, commands_of, united

__all__ = ["Experiment", "Log", "Member", "Options", "run", "seeds_together"]

Member = tuple[tuple[str, ...], int]
"""The names of a variant, and a seed."""
Options = dict[str, dict[str, Any]]
"""Settings by name, with options of argparse."""


@dataclass(frozen=True)
class Log:
    """Who is told how far a training is, and where its state is kept so that an interrupted one goes on."""

    say: Callable[[str], None] = lambda text: None
    folder: Path | None = None

    def within(self, name: str) -> Log:
        """What one of several trainings tells and keeps."""
        return Log(lambda text: self.say(f"{name}: {text}"), self.folder and self.folder / name.replace(" ", "-"))


SILENT = Log()


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment, and what it does with them; `run` makes the record."""

    name: ClassVar[str]
    root: ClassVar[str]
    """What the folder of `--root` holds."""
    identity: ClassVar[str] = "experiment"
    """Where a record has the name; early records have none."""
    by: ClassVar[tuple[str, ...]] = ("method",)
    """Where a run has the names of its variant."""
    choices: ClassVar[tuple[str, ...]] = ("methods", "seeds")
    """Settings that list which runs were made: results of one file may differ in them."""
    technical: ClassVar[tuple[str, ...]] = ()
    """Settings in which they may differ since they do not change what is found."""
    options: ClassVar[Options] = {}
    """What the command line can set, with options that the default does not tell; those with `choices` are checked."""
    paper: ClassVar[Mapping[str, Any] | None] = None
    """What the paper says."""
    tolerance: ClassVar[Mapping[str, float] | None] = None
    """How far from it a full run may be."""
    checkpoints: ClassVar[bool] = False
    """Whether an interrupted training goes on from `--checkpoints`."""

    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for name, options in self.options.items():
            value: Any = getattr(self, name, None)
            known = options.get("choices")
            unknown = {*(value if isinstance(value, tuple) else (value,))} - {*known, None} if known else set()
            if unknown:
                raise ValueError(f"`{name}` has no {min(unknown)!r}: choose from {', '.join(map(str, known or ()))}")

    @abstractmethod
    def load(self, root: Path | None, device: str) -> Any:
        """The data."""

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Any]:
        """Settings and data with which the whole experiment takes seconds."""
        raise NotImplementedError

    @classmethod
    def begin(cls, chosen: argparse.Namespace) -> tuple[Self, Any]:
        """Settings and data as the command line asks for them: what is not None there replaces the settings."""
        given = {field.name: getattr(chosen, field.name, None) for field in fields(cls)}
        given = {key: tuple(own) if isinstance(own, list) else own for key, own in given.items() if own is not None}
        if chosen.quick:
            small, data = cls.quick(chosen.root, chosen.device)
            return replace(small, **given), data
        experiment = replace(cls(), **given)  # pyright: ignore[reportCallIssue]
        return experiment, experiment.load(chosen.root, chosen.device)

    def variants(self) -> Iterable[tuple[str, ...]]:
        """The names of what is compared; the methods, unless an experiment says otherwise."""
        return [(method,) for method in getattr(self, "methods")]  # noqa: B009

    def stacks(self, left: Sequence[Member]) -> Iterable[Sequence[Member]]:
        """What is left to do, in lists of members that are measured together."""
        return ([member] for member in left)

    def measured_together(self, members: Sequence[Member], data: Any, log: Log = SILENT) -> list[dict[str, Any]]:
        """One run for each of a list of `stacks`: what the record says of it besides variant and seed."""
        return [
            self.measured(name, seed, data, log.within(f"{self.name} {name} seed {seed}")) for (name,), seed in members
        ]

    def measured(self, variant: str, seed: int, data: Any, log: Log = SILENT) -> dict[str, Any]:
        """Train and score one network; the seconds that took are part of it."""
        raise NotImplementedError

    def headline(self, found: Mapping[str, Any]) -> str:
        """What is told of a finished run."""
        return ", ".join(f"{name} {value:.4g}" for name, value in found.items() if isinstance(value, float))

    def facts(self, data: Any) -> dict[str, Any]:
        """What the record says besides device, version of torch and runs."""
        said = {"paper": self.paper, "tolerance": self.tolerance}
        own: dict[str, Any] = {self.identity: self.name, "config": asdict(self)}
        return own | {key: value for key, value in said.items() if value is not None}

    def kept(self, one: Mapping[str, Any]) -> bool:
        """Whether a run of an earlier record counts, or is to be made again."""
        return True

    def beside(self, record: Record, data: Any) -> dict[str, Any]:
        """What belongs to a record beside its runs, once these have been made."""
        return {}

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """One record out of several that differ in `choices` and `technical` only; of equal runs the last counts.

        Raises:
            ValueError: if they are of different experiments or settings.
        """
        settings = [{**record["config"], cls.identity: record.get(cls.identity, cls.name)} for record in records]
        for other in settings[1:]:
            check_joinable(settings[0], other, (*cls.choices, *cls.technical))
        config = records[-1]["config"] | united([one["config"] for one in records], cls.choices)
        runs = {cls.key(one): one for record in records for one in record["runs"]}
        return records[-1] | {"config": config, "runs": list(runs.values())}

    @classmethod
    def key(cls, one: Mapping[str, Any]) -> Member:
        """Which member a run is of."""
        return tuple(one[name] for name in cls.by), one["seed"]


def seeds_together(left: Iterable[Member]) -> list[list[Member]]:
    """All seeds of a variant in one list, for `Experiment.stacks`.

    Example:
        >>> seeds_together([(("a",), 0), (("b",), 0), (("a",), 1)])
        [[(('a',), 0), (('a',), 1)], [(('b',), 0)]]
    """
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in left:
        groups.setdefault(member[0], []).append(member)
    return list(groups.values())


def run(
    experiment: Experiment,
    data: Any,
    device: str = "cpu",
    *,
    earlier: Record | None = None,
    save: Callable[[Record], None] = lambda record: None,
    log: Log = SILENT,
) -> Record:
    """Train and score every variant and seed, and return the record.

    Args:
        experiment: settings.
        data: on the device.
        device: where it runs.
        earlier: a record with the same settings, whose runs are kept and not computed again.
        save: called with the record whenever it has grown.
        log: told what was found; its folder is for the state of trainings under way.

    Raises:
        ValueError: if `earlier` was made with other settings.
    """
    place = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device
    record: Record = {**experiment.facts(data), "device": place, "torch": torch.__version__, "runs": []}
    record = json.loads(json.dumps(record))  # tuples are lists, as in a record that was read
    if earlier is not None:
        record = experiment.merged([earlier, record]) | commands_of([earlier])
        record["runs"] = [one for one in record["runs"] if experiment.kept(one)]
    done = {experiment.key(one) for one in record["runs"]}
    pairs = ((names, seed) for seed, names in itertools.product(experiment.seeds, experiment.variants()))
    for members in experiment.stacks([member for member in pairs if member not in done]):
        for (names, seed), own in zip(members, experiment.measured_together(members, data, log), strict=True):
            record["runs"].append(dict(zip(experiment.by, names, strict=True)) | {"seed": seed} | own)
            log.say(f"{experiment.name} {' '.join(names)} seed {seed}: {experiment.headline(own)}")
        record |= experiment.beside(record, data)
        save(record)
    return record
