"""Figures of what a network says and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bayeslim.analysis.figures.pictures import PALETTE, class_map, ramp
from bayeslim.analysis.figures.style import ACCENT, GREY, SECOND, THIRD, TIP, dots, legend_above, panels, styled
from bayeslim.checks.text import figure_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["boundaries", "coverage", "draws", "entropies", "gallery", "observed", "predictive_band", "reliability"]

SQUARE = (2.7, 2.6)


@styled
def reliability(confidence: ArrayLike, accuracy: ArrayLike, count: ArrayLike) -> Figure:
    """Accuracy against stated confidence, the area of a disc in proportion to its examples.

    Args:
        confidence: mean confidence per bin.
        accuracy: part that was right per bin.
        count: examples per bin, above 0.

    Example:
        >>> reliability([0.8], [0.75], [10])
    """
    figure, (axes,) = panels(1, size=SQUARE)
    columns = np.broadcast_arrays(confidence, accuracy, count)
    tips = [f"{n} examples: says {says:.1%}, right {right:.1%}" for says, right, n in zip(*columns, strict=True)]
    axes.plot([0, 1], [0, 1], ":", color=GREY, linewidth=0.8)
    axes.plot(confidence, accuracy, color=ACCENT, linewidth=0.8, alpha=0.6)
    dots(axes, confidence, accuracy, 8 + 90 * columns[2] / np.max(columns[2]), tips)
    axes.set(xlabel="stated confidence", ylabel="part right", xlim=(0, 1.02), ylim=(0, 1.02))
    return figure


@styled
def entropies(edges: Sequence[float], groups: Mapping[str, Sequence[int]]) -> Figure:
    """Histograms of predictive entropy, each group scaled to 1.

    Args:
        edges: of the bins, in nats.
        groups: counts by name.

    Example:
        >>> entropies([0.0, 0.5, 1.0], {"right": [9, 1], "wrong": [0, 2]})
    """
    figure, (axes,) = panels(1)
    width = (edges[1] - edges[0]) / len(groups)
    for place, ((name, counts), colour) in enumerate(zip(groups.items(), (ACCENT, SECOND, THIRD), strict=False)):
        parts = 100 * np.asarray(counts) / max(1, sum(counts))
        label = f"{figure_text(name)} ({sum(counts)})"
        lefts = np.asarray(edges[:-1]) + place * width
        bars = axes.bar(lefts, parts, 0.92 * width, align="edge", color=colour, label=label)
        for bar, count in zip(bars, counts, strict=True):
            bar.set_label(f"{TIP}{figure_text(name)}: {count} examples")
    axes.set(xlabel="predictive entropy (nats)", ylabel="part of the group (%)")
    legend_above(figure, 3)
    return figure


@styled
def predictive_band(
    x: ArrayLike,
    mean: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    model_lower: ArrayLike | None = None,
    model_upper: ArrayLike | None = None,
    points: Sequence[tuple[float, float]] = (),
    labels: tuple[str, str] = ("x", "y"),
) -> Figure:
    """Mean and intervals of a regression over one input.

    Args:
        x: increasing inputs.
        mean: predictive mean.
        lower: end of the interval of a new value.
        upper: its other end.
        model_lower: end of the interval of the curve itself, without noise; None draws none.
        model_upper: its other end.
        points: training data.
        labels: of the axes.

    Example:
        >>> predictive_band([0, 1], [0, 1], [-1, 0], [1, 2])
    """
    figure, (axes,) = panels(1, size=(4.2, 2.6))
    axes.fill_between(x, lower, upper, color=ACCENT, alpha=0.15, linewidth=0, label="95 %, new value")
    if model_lower is not None and model_upper is not None:
        axes.fill_between(x, model_lower, model_upper, color=ACCENT, alpha=0.35, linewidth=0, label="95 %, curve")
    if points:
        axes.plot(*zip(*points, strict=True), ".", color=SECOND, markersize=2, label="data")
    axes.plot(x, mean, color=ACCENT, label="mean")
    axes.set(xlabel=figure_text(labels[0]), ylabel=figure_text(labels[1]))
    axes.margins(x=0)
    legend_above(figure, 4)
    return figure


@styled
def observed(observed: ArrayLike, predicted: ArrayLike, lower: ArrayLike, upper: ArrayLike, unit: str = "") -> Figure:
    """Predictions with intervals against observations.

    Args:
        observed: values.
        predicted: means.
        lower: ends of the intervals.
        upper: their other ends.
        unit: name of the target.

    Example:
        >>> observed([1.0, 2.0], [1.1, 1.8], [0.5, 1.0], [1.5, 2.5])
    """
    figure, (axes,) = panels(1, size=(3.3, 3.0))
    found = np.asarray(observed)
    axes.vlines(found, lower, upper, color=ACCENT, alpha=0.25, linewidth=0.6)
    axes.plot(found, predicted, ".", color=ACCENT, markersize=3)
    axes.axline((float(found[0]), float(found[0])), slope=1, color=GREY, linestyle=":", linewidth=0.8)
    axes.set(xlabel=figure_text(f"observed {unit}".strip()), ylabel=figure_text(f"predicted {unit}".strip()))
    return figure


@styled
def coverage(levels: ArrayLike, inside: ArrayLike) -> Figure:
    """The part of values inside central intervals against their level.

    Args:
        levels: of the intervals.
        inside: parts of the values that they hold.

    Example:
        >>> coverage([0.5, 0.9], [0.52, 0.88])
    """
    figure, (axes,) = panels(1, size=SQUARE)
    axes.plot([0, 1], [0, 1], ":", color=GREY, linewidth=0.8)
    axes.plot(levels, inside, color=ACCENT, clip_on=False)
    pairs = zip(*np.broadcast_arrays(levels, inside), strict=True)
    tips = [f"{level:.0%} intervals hold {part:.1%}" for level, part in pairs]
    dots(axes, levels, inside, 12, tips)
    axes.set(xlabel="level of the interval", ylabel="part inside", xlim=(0, 1.02), ylim=(0, 1.02))
    return figure


@styled
def draws(counts: Sequence[int], errors: Mapping[str, ArrayLike], score: str = "test error (%)") -> Figure:
    """Error against the number of posterior draws, mean and standard deviation over repetitions.

    Args:
        counts: numbers of draws.
        errors: by method, (counts, repetitions).
        score: what is measured.

    Example:
        >>> draws([1, 10], {"sampled": [[3.0, 3.2], [2.0, 2.1]]})
    """
    figure, (axes,) = panels(1)
    for index, (name, values) in enumerate(errors.items()):
        runs = np.asarray(values, np.float64)
        mean, spread, colour = runs.mean(1), runs.std(1, ddof=1), PALETTE[index % 10]
        axes.errorbar(counts, mean, spread, color=colour, capsize=2.5, label=figure_text(name))
        tips = [f"{value:.4g} ± {half:.2g}" for value, half in zip(mean, spread, strict=True)]
        dots(axes, counts, mean, 12, tips, colour)
    axes.set(xscale="log", xlabel="posterior draws", ylabel=figure_text(score))
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    if len(errors) > 1:
        legend_above(figure, 3)
    return figure


@styled
def gallery(rows: Sequence[tuple[NDArray[np.uint8], str, Sequence[tuple[str, float, bool]]]]) -> Figure:
    """Pictures and the probability of each answer beside them, the true one in another colour.

    Args:
        rows: picture (height, width, 3), title, and (class, probability, whether it is the true one) of its bars.

    Example:
        >>> gallery([(np.zeros((8, 8, 3), np.uint8), "a 3", [("3", 0.9, True), ("8", 0.1, False)])])
    """
    from matplotlib.figure import Figure

    down = -(-len(rows) // 2)
    figure = Figure(figsize=(6.8, 1.15 * down), layout="constrained")
    axes = figure.subplots(down, 4, width_ratios=[1, 3, 1, 3], squeeze=False).reshape(-1, 2)
    for (picture, bars), row in zip(axes, rows, strict=False):
        pixels, title, probabilities = row
        picture.imshow(pixels, interpolation="nearest")
        colours = [THIRD if true else ACCENT for _, _, true in probabilities]
        bars.bar(range(len(probabilities)), [part for _, part, _ in probabilities], color=colours)
        bars.set_xticks(range(len(probabilities)), [figure_text(name, 8) for name, _, _ in probabilities])
        bars.set(ylim=(0, 1), yticks=[0, 1])
        bars.set_title(figure_text(title, 48), fontsize=7)
    for picture, bars in axes:
        picture.set_axis_off()
        bars.set_visible(bool(bars.patches))
    return figure


@styled
def boundaries(
    maps: Mapping[str, NDArray[np.float64]],
    extent: tuple[float, float, float, float],
    points: Sequence[tuple[float, float, int]] = (),
    labels: tuple[str, str] = ("x0", "x1"),
) -> Figure:
    """Decisions over two inputs, one panel per method: colour is the class, pale where unsure, lines at 1/2.

    Args:
        maps: by method: probabilities (rows from the bottom, columns, classes), or doubt from 0 to 1 (rows, columns).
        extent: left, right, bottom, top.
        points: x, y and class of training data.
        labels: of the axes.

    Example:
        >>> boundaries({"frequentist": p, "Bayesian": q}, (-1, 1, -1, 1))
    """
    figure, axes = panels(len(maps), size=SQUARE)
    for panel, (name, probabilities) in zip(axes, maps.items(), strict=True):
        pixels = class_map(probabilities) if probabilities.ndim == 3 else ramp(probabilities)
        panel.imshow(pixels, origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
        rows, columns, classes = (*probabilities.shape, 0)[:3]
        across, up = np.linspace(*extent[:2], columns), np.linspace(*extent[2:], rows)
        for index in range(1, classes):
            if probabilities[..., index].min() < 0.5 < probabilities[..., index].max():
                panel.contour(across, up, probabilities[..., index], [0.5], colors="black", linewidths=0.8)
        edge = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.3}
        for index in sorted({label for *_, label in points}):
            x, y = zip(*((x, y) for x, y, label in points if label == index), strict=True)
            panel.plot(x, y, ".", color=PALETTE[index % len(PALETTE)], **edge)
        panel.set(xlabel=figure_text(labels[0]), ylabel=figure_text(labels[1]), xlim=extent[:2], ylim=extent[2:])
        panel.set_title(figure_text(name))
        panel.grid(False)
    return figure
