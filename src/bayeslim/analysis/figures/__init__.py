"""Figures for papers, by matplotlib: functions of plain arrays, in one style."""

from bayeslim.analysis.figures.network import CURVES as CURVES
from bayeslim.analysis.figures.network import pruning_bars as pruning_bars
from bayeslim.analysis.figures.network import pruning_curve as pruning_curve
from bayeslim.analysis.figures.network import scale_maps as scale_maps
from bayeslim.analysis.figures.network import sparsity as sparsity
from bayeslim.analysis.figures.network import spectra as spectra
from bayeslim.analysis.figures.network import training as training
from bayeslim.analysis.figures.style import save as save
from bayeslim.analysis.figures.uncertainty import boundaries as boundaries
from bayeslim.analysis.figures.uncertainty import coverage as coverage
from bayeslim.analysis.figures.uncertainty import draws as draws
from bayeslim.analysis.figures.uncertainty import entropies as entropies
from bayeslim.analysis.figures.uncertainty import gallery as gallery
from bayeslim.analysis.figures.uncertainty import observed as observed
from bayeslim.analysis.figures.uncertainty import predictive_band as predictive_band
from bayeslim.analysis.figures.uncertainty import reliability as reliability

__all__ = [
    "CURVES",
    "boundaries",
    "coverage",
    "draws",
    "entropies",
    "gallery",
    "observed",
    "predictive_band",
    "pruning_bars",
    "pruning_curve",
    "reliability",
    "save",
    "scale_maps",
    "sparsity",
    "spectra",
    "training",
]
