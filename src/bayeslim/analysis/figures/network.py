"""Figures of training, pruning and posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bayeslim.analysis.figures.pictures import PALETTE
from bayeslim.analysis.figures.style import ACCENT, GREY, SECOND, THIRD, dots, legend_above, panels, styled
from bayeslim.checks.text import figure_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["pruning_bars", "pruning_curve", "scale_maps", "sparsity", "spectra", "training"]

CURVES = {
    "loss per example (nats)": ("energy", "nll", "validation_nll"),
    "information (KL, nats)": ("kl",),
    "weight of the KL": ("beta",),
    "learning rate": ("lr",),
}
"""What stands in one panel."""


@styled
def training(epochs: Sequence[int], series: Mapping[str, Sequence[float]]) -> Figure:
    """Curves over the epochs, in one panel those of one unit.

    Args:
        epochs: numbers of the epochs.
        series: values by name, such as energy, nll, kl, beta, lr.

    Example:
        >>> training([1, 2], {"nll": [1.0, 0.5]})
    """
    known = {name for names in CURVES.values() for name in names}
    groups = CURVES | {figure_text(name): (name,) for name in series if name not in known}
    shown = {unit: [name for name in names if name in series] for unit, names in groups.items()}
    shown = {unit: names for unit, names in shown.items() if names}
    figure, axes = panels(len(shown), columns=2, size=(3.2, 1.9))
    for panel, (unit, names) in zip(axes, shown.items(), strict=True):
        for name, colour in zip(names, (ACCENT, SECOND, THIRD), strict=False):
            label = figure_text(name.replace("_", " "))
            panel.plot(epochs, series[name], color=colour, marker="o" if len(epochs) == 1 else None, label=label)
        panel.set(xlabel="epoch", ylabel=unit)
        if len(names) > 1:
            panel.legend()
        elif np.nanmin([0.0, *series[names[0]]]) == 0:
            panel.set_ylim(bottom=0)
    return figure


@styled
def sparsity(epochs: Sequence[int], layers: Mapping[str, Sequence[float]]) -> Figure:
    """The part of each layer's weights that is noise, over the epochs.

    Args:
        epochs: numbers of the epochs.
        layers: parts in [0, 1] by layer name.

    Example:
        >>> sparsity([1, 2], {"0": [0.1, 0.9]})
    """
    figure, (axes,) = panels(1, size=(4.2, 2.5))
    few = len(layers) <= 6
    for index, (name, values) in enumerate(layers.items()):
        axes.plot(
            epochs,
            100 * np.asarray(values),
            color=PALETTE[index] if few else ACCENT,
            marker="o" if len(epochs) == 1 else None,
            label=f"layer {figure_text(name)}",  # a label that begins with "_" would be left out
            alpha=1 if few else 0.5,
        )
    axes.set(xlabel="epoch", ylabel="noise weights (%)", ylim=(-2, 102))
    if few:
        legend_above(figure, 3)
    return figure


@styled
def pruning_curve(
    fewer: ArrayLike, scores: ArrayLike, random: ArrayLike, unpruned: float, chosen: float, name: str
) -> Figure:
    """A score against how many times fewer weights are left, pruned by noise and at random.

    Args:
        fewer: all weights over those that are left, at least 1.
        scores: with the noisiest weights pruned.
        random: with as many pruned at random.
        unpruned: with none pruned.
        chosen: the chosen one of them.
        name: of the score.

    Example:
        >>> pruning_curve([1, 10], [0.98, 0.97], [0.98, 0.4], 0.98, 10, "accuracy")
    """
    from matplotlib.ticker import LogLocator

    figure, (axes,) = panels(1)
    axes.axhline(unpruned, color=GREY, linestyle=":", linewidth=0.8, label="not pruned")
    axes.axvline(chosen, color=THIRD, linestyle="--", linewidth=0.8, label="chosen", gid="cursor")
    axes.plot(fewer, random, "s--", color=SECOND, label="at random")
    axes.plot(fewer, scores, color=ACCENT, label="noise first")
    tips = [f"{x:.3g} times fewer weights: {y:.4g}" for x, y in zip(np.asarray(fewer), np.asarray(scores), strict=True)]
    dots(axes, fewer, scores, 12, tips)
    axes.set(xlabel="times fewer weights", ylabel=figure_text(name), xscale="log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    legend_above(figure, 4)
    return figure


@styled
def pruning_bars(values: Mapping[str, Sequence[float]], name: str) -> Figure:
    """One bar per way of pruning: none, principled, random; with error bars where a way has several runs.

    Args:
        values: scores of the runs by way.
        name: of the score.

    Example:
        >>> pruning_bars({"none": [0.98], "principled": [0.98], "random": [0.41]}, "accuracy")
    """
    figure, (axes,) = panels(1, size=(2.6, 2.3))
    means = [float(np.mean(runs)) for runs in values.values()]
    spread = [float(np.std(runs, ddof=1)) if len(runs) > 1 else 0.0 for runs in values.values()]
    colours = [(ACCENT, THIRD, SECOND)[index % 3] for index in range(len(values))]
    bars = axes.bar(
        [figure_text(way) for way in values], means, 0.6, color=colours, yerr=spread if any(spread) else None, capsize=3
    )
    axes.bar_label(bars, [f"{mean:.3g}" for mean in means], padding=2, fontsize=7)
    axes.set(ylabel=figure_text(name))
    axes.margins(y=0.12)
    return figure


@styled
def spectra(layers: Mapping[str, tuple[Sequence[float], Sequence[float]]], ranks: int = 10) -> Figure:
    """Explained part per singular value of means and standard deviations, one panel per layer.

    Args:
        layers: by name: parts explained, of the means and of the standard deviations.
        ranks: singular values to show.

    Example:
        >>> spectra({"0": ([0.4, 0.3], [0.98, 0.01])})
    """
    figure, axes = panels(len(layers), size=(2.3, 1.9))
    for panel, (name, (mean, scale)) in zip(axes, layers.items(), strict=True):
        for values, label, style, colour in (
            (mean, "means", "s-", SECOND),
            (scale, "standard deviations", "o-", ACCENT),
        ):
            shown = 100 * np.asarray(values[:ranks])
            panel.plot(range(1, len(shown) + 1), shown, style, color=colour, label=label)
        count = min(ranks, len(mean))
        panel.set(xlabel="singular value", ylabel="explained (%)", ylim=(-4, 104), xlim=(0.5, count + 0.5))
        panel.set(title=f"layer {figure_text(name)}", xticks=range(1, count + 1, 1 if count < 6 else 3))
    legend_above(figure, 2, axes[0])
    return figure


@styled
def scale_maps(layers: Mapping[str, ArrayLike]) -> Figure:
    """Heat maps of posterior standard deviations, one panel per layer.

    Args:
        layers: (output, input) by name.

    Example:
        >>> scale_maps({"0": [[0.1, 0.2], [0.1, 0.3]]})
    """
    figure, axes = panels(len(layers), size=(2.5, 2.1))
    for panel, (name, values) in zip(axes, layers.items(), strict=True):
        image = panel.imshow(np.asarray(values), aspect="auto", cmap="cividis", interpolation="nearest")
        panel.set(title=f"layer {figure_text(name)}", xlabel="input", ylabel="output", xticks=[], yticks=[])
        figure.colorbar(image, ax=panel, shrink=0.9, label="std")
    return figure
