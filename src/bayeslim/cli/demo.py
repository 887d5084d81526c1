"""`bayeslim demo`."""

from __future__ import annotations

import importlib

__all__ = ["main"]


def main(args: list[str]) -> None:
    """Run the demonstration; it parses its own options."""
    importlib.import_module("bayeslim.experiments.demo").main(args)
