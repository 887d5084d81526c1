"""Figures of posteriors, by matplotlib (the `report` extra)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from bayeslim.analysis.low_rank import named_spectra
from bayeslim.layers.base import BayesLayer
from bayeslim.plain_text import figure_text

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
    from matplotlib.figure import Figure

    spectra = named_spectra(model)
    if not spectra:
        raise ValueError("`model` has no Bayesian layers: there is nothing to plot")
    figure = Figure(figsize=(3.2 * len(spectra), 2.8), layout="constrained")
    axes = figure.subplots(1, len(spectra), squeeze=False)[0]
    for panel, (name, spectrum) in zip(axes, spectra.items(), strict=True):
        for values, label, colour in (
            (spectrum.mean, "means", "tab:blue"),
            (spectrum.scale, "standard deviations", "tab:orange"),
        ):
            shown = values[:ranks].tolist()
            panel.plot(range(1, len(shown) + 1), shown, "o-", label=label, color=colour, markersize=4)
        panel.set(title=f"layer {figure_text(name)}", xlabel="singular value", ylim=(-0.03, 1.03))
    axes[0].set_ylabel("explained variance")
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
    from matplotlib.figure import Figure

    layers = {n: m for n, m in model.named_modules() if isinstance(m, BayesLayer)}
    if not layers:
        raise ValueError("`model` has no Bayesian layers: there is nothing to plot")
    figure = Figure(figsize=(3.6 * len(layers), 3.0), layout="constrained")
    axes = figure.subplots(1, len(layers), squeeze=False)[0]
    for panel, (name, layer) in zip(axes, layers.items(), strict=True):
        scale = layer.weight.variance().sqrt().flatten(1).float().cpu().numpy()
        image = panel.imshow(scale, aspect="auto", cmap="viridis", interpolation="nearest")
        panel.set(title=f"layer {figure_text(name)}", xlabel="input")
        figure.colorbar(image, ax=panel, shrink=0.8)
    axes[0].set_ylabel("output")
    return figure
