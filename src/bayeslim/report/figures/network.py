"""Figures of training, pruning and posteriors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bayeslim.plain_text import figure_text
from bayeslim.report.figures.style import ACCENT, GREY, SECOND, THIRD, panels, styled
from bayeslim.report.pictures import PALETTE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["pruning_bars", "pruning_curve", "scale_maps", "sparsity", "spectra", "training"]

TITLES = {
    "energy": "energy (nats)",
    "nll": "nll (nats)",
    "validation_nll": "validation nll (nats)",
    "kl": "KL (nats)",
    "beta": "KL weight",
    "lr": "learning rate",
}


@styled
def training(epochs: Sequence[int], series: Mapping[str, Sequence[float]]) -> Figure:
    """One panel per curve over the epochs.

    Args:
        epochs: numbers of the epochs.
        series: values by name, such as energy, nll, kl, beta, lr.

    Example:
        >>> training([1, 2], {"nll": [1.0, 0.5]})
    """
    figure, axes = panels(len(series), size=(2.4, 1.8))
    for panel, (name, values) in zip(axes, series.items(), strict=True):
        panel.plot(epochs, values, color=ACCENT, marker="o" if len(epochs) == 1 else None)
        panel.set(xlabel="epoch", ylabel=TITLES.get(name, figure_text(name)))
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
    for index, (name, values) in enumerate(layers.items()):
        few = len(layers) <= 6
        axes.plot(
            epochs,
            100 * np.asarray(values),
            color=PALETTE[index] if few else ACCENT,
            label=f"layer {figure_text(name)}",  # a label that begins with "_" would be left out
            alpha=1 if few else 0.5,
        )
    axes.set(xlabel="epoch", ylabel="noise weights (%)", ylim=(-2, 102))
    if len(layers) <= 6:
        figure.legend(loc="outside right upper")
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
    figure, (axes,) = panels(1)
    axes.axhline(unpruned, color=GREY, linestyle=":", linewidth=0.8, label="not pruned")
    axes.axvline(chosen, color=THIRD, linestyle="--", linewidth=0.8, label="chosen")
    axes.plot(fewer, random, "s--", color=SECOND, label="at random")
    axes.plot(fewer, scores, "o-", color=ACCENT, label="noise first")
    axes.set(xlabel="times fewer weights", ylabel=figure_text(name), xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    figure.legend(loc="outside upper center", ncols=4, columnspacing=1, handlelength=1.6)
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
def spectra(layers: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Explained part per singular value of means and standard deviations, one panel per layer.

    Args:
        layers: by name: parts explained, of the means and of the standard deviations.

    Example:
        >>> spectra({"0": ([0.4, 0.3], [0.98, 0.01])})
    """
    figure, axes = panels(len(layers), size=(2.3, 1.9))
    for panel, (name, (mean, scale)) in zip(axes, layers.items(), strict=True):
        for values, label, style, colour in (
            (mean, "means", "s-", SECOND),
            (scale, "standard deviations", "o-", ACCENT),
        ):
            shown = 100 * np.asarray(values[:10])
            panel.plot(range(1, len(shown) + 1), shown, style, color=colour, label=label)
        count = min(10, len(mean))
        panel.set(xlabel="singular value", ylabel="explained (%)", ylim=(-4, 104), xlim=(0.5, count + 0.5))
        panel.set(title=f"layer {figure_text(name)}", xticks=range(1, count + 1, 1 if count < 6 else 3))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
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
