"""One look for all figures: small sans-serif text, thin axes, colours that colour-blind readers tell apart."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from bayeslim.analysis.figures.pictures import PALETTE
from bayeslim.checks.packages import check_installed
from bayeslim.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT",
    "GREY",
    "RULE",
    "SECOND",
    "THIRD",
    "TIP",
    "dots",
    "legend_above",
    "panels",
    "rendered",
    "save",
    "styled",
]

ACCENT, SECOND, THIRD, GREY, RULE = PALETTE[0], PALETTE[5], PALETTE[2], "#777777", "#DFE4EA"
PANEL = (3.3, 2.5)
"""Width and height of a panel in inches: one column of a two-column paper."""
P = ParamSpec("P")

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "image.composite_image": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "bayeslim",  # the same figure gives the same file
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function with the settings of this module, whatever the user's own are.

    Raises:
        ModuleNotFoundError: when called without matplotlib.
    """

    @functools.wraps(draw)
    def with_settings(*args: P.args, **kwargs: P.kwargs) -> Figure:
        check_installed("matplotlib", "figures need matplotlib", "report")
        import matplotlib

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(SETTINGS)
            return draw(*args, **kwargs)

    return with_settings


def panels(count: int, columns: int = 3, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Any]]:
    """A figure of `count` panels, at most `columns` beside each other, and their axes."""
    from matplotlib.figure import Figure

    across = min(count, columns)
    down = -(-count // across)
    figure = Figure(figsize=(size[0] * across, size[1] * down), layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, axes[:count]


TIP = "_tip:"
"""Begins the label of what a page explains where it is pointed at; legends leave it out."""


def dots(axes: Any, x: ArrayLike, y: ArrayLike, sizes: Any, tips: Sequence[str], colour: str = ACCENT) -> None:
    """Discs, each with a text of its own for pages.

    Args:
        axes: to draw on.
        x: places.
        y: places.
        sizes: areas, or one area for all.
        tips: the texts.
        colour: of all.
    """
    for place in zip(*np.broadcast_arrays(x, y, sizes), tips, strict=True):
        axes.scatter(*place[:3], color=colour, linewidths=0, zorder=3, clip_on=False, label=f"{TIP}{place[3]}")


def legend_above(figure: Figure, columns: int, axes: Any = None) -> None:
    """A legend over the panels, of all that is labelled, or of one panel."""
    labelled = axes.get_legend_handles_labels() if axes else ()
    figure.legend(*labelled, loc="outside upper center", ncols=columns, columnspacing=1, handlelength=1.6)


def save(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's ending, atomically and without a date.

    Args:
        figure: what a function of this package returned.
        path: such as `figure.pdf`, `.svg` or `.png`.

    Raises:
        ValueError: for an ending that matplotlib does not know.

    Example:
        >>> save(reliability([0.8], [0.75], [10]), Path("reliability.pdf"))
    """
    kind = path.suffix.removeprefix(".")
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise ValueError(f"`path` must end in one of {', '.join(sorted(known))}, got {path.name!r}: try .pdf")
    write_atomically(path, rendered(figure, kind))
    return path


def rendered(figure: Figure, kind: str, **options: Any) -> bytes:
    """A figure as a file of this kind; the same figure gives the same bytes."""
    import matplotlib

    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    content = io.BytesIO()
    with matplotlib.rc_context(SETTINGS):
        _settle(figure)
        figure.savefig(content, format=kind, metadata=undated, dpi=200, **options)
    return content.getvalue()


def _settle(figure: Figure) -> None:
    """Fix the layout on a grid: its solver ends a rounding error apart from run to run, and names in SVG follow it."""
    if figure.get_layout_engine() is None:
        return
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        left, bottom, width, height = (round(value, 5) for value in axes.get_position(original=True).bounds)
        axes.set_position((left, bottom, width, height))
