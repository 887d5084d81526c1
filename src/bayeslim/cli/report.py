"""`bayeslim report`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["command"]


def command(run: Path, /, *, out: Path | None = None, figures: Path | None = None) -> None:
    """Write a page about a run: data, training, calibration, doubts, pruning.

    Args:
        run: folder of the run.
        out: the page; default: report.html in the folder of the run.
        figures: also write every plot as PDF and SVG into this folder, for a paper.
    """
    from bayeslim.cli.overflow import overflow_explained, refuse_held_out
    from bayeslim.report import write_report
    from bayeslim.runs import Run

    opened = Run(run)
    with overflow_explained(lambda: refuse_held_out(opened.model("trained"), opened.splits(), opened.preprocessing)):
        page = write_report(opened, out or run / "report.html", figures)
    print(f"report: {page}")
    if figures is not None:
        print(f"figures: {figures}")
