"""Figures of posteriors, by matplotlib (the `report` extra)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bayeslim.analysis.low_rank import named_spectra
from bayeslim.plain_text import figure_text
from bayeslim.pruning.prune import bayes_layers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot_scales", "plot_spectra"]


def plot_spectra(model: nn.Module, ranks: int = 10) -> Figure:
    """Explained variance per singular value of means and standard deviations, one panel per layer.

    Args:
        model: network with Bayesian layers.
        ranks: singular values to show.

    Example:
        >>> plot_spectra(model).savefig("spectra.pdf")
    """
    spectra = named_spectra(model)
    figure, axes = _panels(spectra, (3.2, 2.8), xlabel="singular value", ylabel="explained variance")
    for panel, spectrum in zip(axes, spectra.values(), strict=True):
        for values, label, colour in (
            (spectrum.mean, "means", "tab:blue"),
            (spectrum.scale, "standard deviations", "tab:orange"),
        ):
            shown = values[:ranks].tolist()
            panel.plot(range(1, len(shown) + 1), shown, "o-", label=label, color=colour, markersize=4)
        panel.set_ylim(-0.03, 1.03)
    axes[0].legend(fontsize=8)
    return figure


@torch.no_grad()
def plot_scales(model: nn.Module) -> Figure:
    """Heat maps of the posterior standard deviations, (out, fan_in), one panel per layer.

    Args:
        model: network with Bayesian layers.

    Example:
        >>> plot_scales(model).savefig("scales.pdf")
    """
    layers = bayes_layers(model, "plot")
    figure, axes = _panels(layers, (3.6, 3.0), xlabel="input", ylabel="output")
    for panel, layer in zip(axes, layers.values(), strict=True):
        scale = layer.weight.variance().sqrt().flatten(1).float().cpu().numpy()
        image = panel.imshow(scale, aspect="auto", cmap="viridis", interpolation="nearest")
        figure.colorbar(image, ax=panel, shrink=0.8)
    return figure


def _panels(layers: Collection[str], size: tuple[float, float], xlabel: str, ylabel: str) -> tuple[Figure, Any]:
    """A figure with a panel of this size per layer, in one row, and their axes."""
    from matplotlib.figure import Figure

    if not layers:
        raise ValueError("`model` has no Bayesian layers: there is nothing to plot")
    figure = Figure(figsize=(size[0] * len(layers), size[1]), layout="constrained")
    axes = figure.subplots(1, len(layers), squeeze=False)[0]
    for panel, name in zip(axes, layers, strict=True):
        panel.set(title=f"layer {figure_text(name)}", xlabel=xlabel)
    axes[0].set_ylabel(ylabel)
    return figure, axes
