"""`bayeslim reproduce`."""

from __future__ import annotations

import importlib

__all__ = ["main"]


def main(args: list[str]) -> None:
    """Run an experiment of the papers, which are a package of their own beside this one."""
    importlib.import_module("bayeslim_papers.reproduce").main(args)
