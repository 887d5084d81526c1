"""The record of an experiment, as a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from bayeslim.storage import write_atomically

__all__ = ["Record", "check_joinable", "commands_of", "made_by", "read_record", "united", "write_record"]

Record = dict[str, Any]
"""What JSON can hold: settings, facts, and a list of runs."""
_command: ContextVar[str | None] = ContextVar("command", default=None)


@contextmanager
def made_by(command: str) -> Iterator[None]:
    """Let the records that are written inside tell the command that made them, beside those of earlier runs."""
    token = _command.set(command)
    try:
        yield
    finally:
        _command.reset(token)


def read_record(path: Path | None) -> Record | None:
    """What an experiment wrote there before, to go on from; None where it has not."""
    return json.loads(path.read_text()) if path is not None and path.exists() else None


def write_record(path: Path | None, record: Record) -> None:
    """Write what an experiment measured as JSON, all of it or nothing; without a path, nothing.

    Raises:
        OSError: if it cannot be written; the message names the file.
    """
    if (command := _command.get()) is not None:
        record = {**record, "commands": list(dict.fromkeys([*record.get("commands", []), command]))}
    if path is not None:
        write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def commands_of(records: Sequence[Record]) -> Record:
    """The commands that made them, each once, where there are any."""
    commands = list(dict.fromkeys(command for record in records for command in record.get("commands", [])))
    return {"commands": commands} if commands else {}


def check_joinable(
    first: Mapping[str, Any], other: Mapping[str, Any], choices: Collection[str], part: str | None = None
) -> None:
    """Raise unless the settings of two records agree in all but `choices`, such as the seeds.

    Raises:
        ValueError: naming the first setting that differs, and the part of the records that it is of.

    Example:
        >>> check_joinable({"epochs": 3, "seeds": [0]}, {"epochs": 3, "seeds": [1]}, {"seeds"})
    """
    wrong = [key for key in {**first, **other} if key not in choices and first.get(key) != other.get(key)]
    if wrong:
        of = "" if part is None else f" of {part!r}"
        raise ValueError(
            f"results with different settings cannot be joined: `{wrong[0]}`{of} is {first.get(wrong[0])} in one and "
            f"{other.get(wrong[0])} in another; write them to different files"
        )


def united(settings: Sequence[Mapping[str, Any]], choices: Collection[str]) -> dict[str, list[Any]]:
    """The settings that list what was run, with what is in any of several records.

    Example:
        >>> united([{"seeds": [2, 0]}, {"seeds": [0, 1]}], ["seeds"])
        {'seeds': [2, 0, 1]}
    """
    return {key: list(dict.fromkeys(entry for own in settings for entry in own[key])) for key in choices}
