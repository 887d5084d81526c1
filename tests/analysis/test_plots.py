"""Figures of posteriors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.analysis import named_spectra, plot_scales, plot_spectra

pytest.importorskip("matplotlib")


def network() -> Any:
    torch.manual_seed(0)
    return bl.bayesianize_(nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 12), nn.Linear(12, 2)))


def test_spectra_have_a_panel_per_layer_with_two_curves(tmp_path: Path) -> None:
    model = network()
    figure = plot_spectra(model, ranks=4)
    assert [panel.get_title() for panel in figure.axes] == ["layer 0", "layer 2", "layer 3"]
    for panel, spectrum in zip(figure.axes, named_spectra(model).values(), strict=True):
        curves = {str(line.get_label()): np.asarray(line.get_ydata()) for line in panel.get_lines()}
        np.testing.assert_allclose(curves["means"], 100 * spectrum.mean[:4])
        np.testing.assert_allclose(curves["standard deviations"], 100 * spectrum.scale[:4])
    assert len(figure.legends) == 1
    figure.savefig(tmp_path / "spectra.png")
    assert (tmp_path / "spectra.png").stat().st_size > 1000


def test_scales_have_a_heat_map_per_layer(tmp_path: Path) -> None:
    model = network()
    figure = plot_scales(model)
    panels = [panel for panel in figure.axes if panel.get_images()]
    assert len(panels) == 3 and len(figure.axes) == 6  # each with its colour bar
    for panel, index in zip(panels, (0, 2, 3), strict=True):
        shown = np.asarray(panel.get_images()[0].get_array())
        expected = model[index].weight.variance().sqrt().flatten(1).detach().numpy()
        np.testing.assert_allclose(shown, expected)
    figure.savefig(tmp_path / "scales.png")
    assert (tmp_path / "scales.png").stat().st_size > 1000


def test_a_single_layer_and_none() -> None:
    layer = bl.bayesianize_(nn.Linear(3, 2))
    assert len(plot_spectra(layer).axes) == 1
    for plot in (plot_spectra, plot_scales):
        with pytest.raises(ValueError, match="`model` has no Bayesian layers: there is nothing to plot"):
            plot(nn.Linear(3, 2))
