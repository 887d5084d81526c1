"""`bayeslim data`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = ["command"]


def command(action: Literal["list", "fetch", "where"], name: str | None = None, /) -> None:
    """List the known data sets, fetch one into the cache, or say where they are looked for.

    Args:
        action: list, fetch NAME, or where.
        name: the set to fetch.
    """
    from bayeslim.checks.names import check_name
    from bayeslim.data.cache import data_folders
    from bayeslim.data.named import NAMED

    if action == "list":
        print(*NAMED, sep="\n")
        print("or your own: .csv, .parquet, .npy, .npz, or a folder with one sub-folder of images per class")
    elif action == "where":
        for folder in data_folders():
            print(f"{folder}{'' if Path(folder).is_dir() else '  (not there)'}")
    else:
        if name is None:
            raise ValueError("say which set to fetch: bayeslim data fetch mnist")
        check_name("data set", name, NAMED)
        problem = NAMED[name](0, None)
        print(f"{name} is here", *problem.notes, sep="\n  ")
