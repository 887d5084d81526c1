"""The record of an experiment, as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bayeslim.storage import write_atomically

__all__ = ["write_record"]


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
