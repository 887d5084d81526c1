"""The figure of docs/performance.md: ratios of training steps with their limits, and the cost over the batch."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from limits import step_seconds

from bayeslim.analysis.figures.pictures import PALETTE
from bayeslim.analysis.figures.style import ACCENT, GREY, SECOND, panels, save, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write(records: dict[str, dict[str, Any]], folder: Path) -> None:
    """As `performance.svg` and `performance.png`."""
    for kind in ("svg", "png"):
        save(draw(records), folder / f"performance.{kind}")


@styled
def draw(records: dict[str, dict[str, Any]]) -> "Figure":
    record = records["train_step"]
    figure, axes = panels(2 if "scaling" in records else 1, size=(3.6, 3.0))
    names = [name for name in record["steps"]["eager"] if name != "deterministic"]
    for mode, colour, shift in (("eager", ACCENT, -0.15), ("compiled", SECOND, 0.15)):
        found = [(row, record["steps"][mode][n]) for row, n in enumerate(names) if n in record["steps"].get(mode, {})]
        if found:
            middle = [cost["ratio"] for _, cost in found]
            spread = [[cost["ratio"] - cost["ratio_low"] for _, cost in found]]
            spread.append([cost["ratio_high"] - cost["ratio"] for _, cost in found])
            rows = [row + shift for row, _ in found]
            axes[0].errorbar(middle, rows, xerr=spread, fmt="o", color=colour, label=mode, linewidth=0.8)
    plain = record["steps"]["eager"]["deterministic"]["seconds"]
    limits = [step_seconds(record, name) / plain for name in names]
    axes[0].plot(limits, range(len(names)), "|", color=GREY, markersize=11, markeredgewidth=1.5, label="limit, eager")
    axes[0].axvline(1.0, color=GREY, linewidth=0.6, linestyle=":")
    axes[0].set(title="training step, ratio to the deterministic network", xscale="log", ylim=(len(names) - 0.5, -0.5))
    ticks = [0.5, 1, 1.5, 2, 3, 5, 10]
    axes[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axes[0].set_xticks([], minor=True)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].legend(loc="lower right")
    if "scaling" in records:
        sweep = records["scaling"]["sweeps"]["batch"]
        for (name, seconds), colour in zip(sweep["seconds"].items(), PALETTE, strict=False):
            label = f"{name}: {sweep['exponent'][name]:.2f}"
            axes[1].plot(sweep["sizes"], [1e3 * value for value in seconds], "o-", color=colour, label=label)
        axes[1].set(title="training step over the batch", xlabel="batch", ylabel="ms", xscale="log", yscale="log")
        axes[1].set_xticks(sweep["sizes"], [str(size) for size in sweep["sizes"]])
        axes[1].set_xticks([], minor=True)
        axes[1].legend(loc="upper left", title="exponent of the larger half")
    return figure
