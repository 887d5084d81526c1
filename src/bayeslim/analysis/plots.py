"""Figures of posteriors, by matplotlib (the `report` extra)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from bayeslim.analysis import figures
from bayeslim.analysis.low_rank import named_spectra
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
    _check_layers(spectra := named_spectra(model))
    parts = {name: (spectrum.mean.tolist(), spectrum.scale.tolist()) for name, spectrum in spectra.items()}
    return figures.spectra(parts, ranks)


@torch.no_grad()
def plot_scales(model: nn.Module) -> Figure:
    """Heat maps of the posterior standard deviations, (out, fan_in), one panel per layer.

    Args:
        model: network with Bayesian layers.

    Example:
        >>> plot_scales(model).savefig("scales.pdf")
    """
    _check_layers(layers := bayes_layers(model, "plot"))
    scales = {name: layer.weight.variance().sqrt().flatten(1).float().cpu().numpy() for name, layer in layers.items()}
    return figures.scale_maps(scales)


def _check_layers(layers: Mapping[str, object]) -> None:
    if not layers:
        raise ValueError("`model` has no Bayesian layers: there is nothing to plot")
