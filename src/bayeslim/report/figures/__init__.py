"""Figures for papers, by matplotlib: functions of plain arrays, in one style."""

from bayeslim.report.figures.network import pruning_bars as pruning_bars
from bayeslim.report.figures.network import pruning_curve as pruning_curve
from bayeslim.report.figures.network import scale_maps as scale_maps
from bayeslim.report.figures.network import sparsity as sparsity
from bayeslim.report.figures.network import spectra as spectra
from bayeslim.report.figures.network import training as training
from bayeslim.report.figures.style import save as save
from bayeslim.report.figures.uncertainty import boundaries as boundaries
from bayeslim.report.figures.uncertainty import coverage as coverage
from bayeslim.report.figures.uncertainty import draws as draws
from bayeslim.report.figures.uncertainty import entropies as entropies
from bayeslim.report.figures.uncertainty import gallery as gallery
from bayeslim.report.figures.uncertainty import observed as observed
from bayeslim.report.figures.uncertainty import predictive_band as predictive_band
from bayeslim.report.figures.uncertainty import reliability as reliability

__all__ = [
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
