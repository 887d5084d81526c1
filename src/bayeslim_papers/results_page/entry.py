"""What the page says about one record, and records that belong under one heading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Entry", "Notes", "Record", "Section", "seeds_of"]

Record = dict[str, Any]
"""What an experiment measured, as read from JSON."""


Notes = Callable[[Record], str]
"""Text about a record."""


def _nothing(record: Record) -> str:
    return ""


@dataclass(frozen=True)
class Entry:
    """One record and how it is shown."""

    record: str
    """The file, `results/{record}.json`."""
    title: str
    """Its heading where a section has several entries, and its name among those not run yet."""
    command: str | None
    """What measures it, without `--out`; None if nothing in the repository does."""
    table: Callable[[Record], str]
    """Markdown tables, the paper's numbers beside ours."""
    about: Notes = _nothing
    """A paragraph before the tables: what was run."""
    notes: Notes = _nothing
    """Paragraphs and lists after the tables: what reproduces, what does not and the most likely reason."""


@dataclass(frozen=True)
class Section:
    """Entries under one heading."""

    title: str
    entries: tuple[Entry, ...] = ()
    about: str = ""
    """Text that holds for all entries."""


def seeds_of(record: Record) -> int:
    """How many seeds (data sets, splits) the runs of a record have.

    Example:
        >>> seeds_of({"runs": [{"seed": 0}, {"seed": 3}, {"seed": 0}]})
        2
    """
    return len({run["seed"] for run in record["runs"]})
