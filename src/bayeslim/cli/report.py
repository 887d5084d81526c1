"""`bayeslim report`."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from bayeslim.cli.parsing import call

__all__ = ["command", "main"]


def main(args: list[str]) -> None:
    """Parse and report."""
    call(command, "report", args)


def command(run: Path, /, *, out: Path | None = None) -> None:
    """Write a page about a run: data, training, calibration, doubts, pruning.

    Args:
        run: folder of the run.
        out: the page; default: report.html in the folder of the run.
    """
    from bayeslim.runs import Run

    opened = Run(run)
    if importlib.util.find_spec("bayeslim.report") is None:
        raise ModuleNotFoundError("this bayeslim has no reports: install a newer one")
    page = importlib.import_module("bayeslim.report").write_report(opened, out or run / "report.html")
    print(f"report: {page}")
