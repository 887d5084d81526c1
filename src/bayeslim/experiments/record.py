"""The record of an experiment, as a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from bayeslim.storage import write_atomically

__all__ = ["check_joinable", "write_record"]


def write_record(path: Path | None, record: dict[str, Any]) -> None:
    """Write what an experiment measured as JSON, all of it or nothing; without a path, nothing.

    Args:
        path: the file, or None where none was asked for.
        record: what JSON can hold.

    Raises:
        OSError: if it cannot be written; the message names the file.

    Example:
        >>> write_record(Path("results/mine.json"), {"accuracy": 98.4})
    """
    if path is not None:
        write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def check_joinable(first: Mapping[str, Any], other: Mapping[str, Any], choices: Collection[str]) -> None:
    """Raise unless the settings of two records agree in all but `choices`.

    Args:
        first: settings of one record.
        other: of another that is to be joined with it.
        choices: what may differ, such as the seeds.

    Raises:
        ValueError: naming the first setting that differs.

    Example:
        >>> check_joinable({"epochs": 3, "seeds": [0]}, {"epochs": 3, "seeds": [1]}, {"seeds"})
    """
    wrong = [key for key in {**first, **other} if key not in choices and first.get(key) != other.get(key)]
    if wrong:
        raise ValueError(
            f"results with different settings cannot be joined: `{wrong[0]}` is {first.get(wrong[0])} in one and "
            f"{other.get(wrong[0])} in another; write them to different files"
        )
