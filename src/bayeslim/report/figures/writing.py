"""All figures of a report, into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bayeslim.report.content import Content
from bayeslim.report.figures import network, uncertainty
from bayeslim.report.figures.style import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_figures", "write_figures"]


def write_figures(content: Content, folder: Path, formats: Sequence[str] = ("pdf", "svg")) -> list[Path]:
    """Write every figure that applies; the same content gives the same files.

    Args:
        content: as of `collect`.
        folder: made if needed.
        formats: file endings that matplotlib knows.

    Returns:
        The files, in order.

    Raises:
        ModuleNotFoundError: without matplotlib.

    Example:
        >>> write_figures(collect(model, train, test), Path("figures"), ("pdf",))
    """
    drawn = draw_figures(content)
    return [save(figure, folder / f"{name}.{kind}") for name, figure in drawn.items() for kind in formats]


def draw_figures(content: Content) -> dict[str, Figure]:
    """Every figure that applies, by file name."""
    return _network(content) | _uncertainty(content)


def _network(content: Content) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    if content.training:
        found["training"] = network.training(content.training.epochs, content.training.series)
        if content.training.sparsity:
            found["sparsity"] = network.sparsity(content.training.epochs, content.training.sparsity)
    if content.pruning:
        name, fewer = content.headline, content.pruning.fewer
        points, chosen = content.pruning.points, content.pruning.points[content.pruning.chosen]
        found["pruning_curve"] = network.pruning_curve(
            fewer,
            [point.scores[name] for point in points],
            [point.random[name] for point in points],
            content.pruning.unpruned[name],
            fewer[content.pruning.chosen],
            name,
        )
        bars = {
            "none": [content.pruning.unpruned[name]],
            "principled": [chosen.scores[name]],
            "random": [chosen.random[name]],
        }
        found["pruning_bars"] = network.pruning_bars(bars, name)
    if content.layers:
        found["spectra"] = network.spectra({name: (layer.mean, layer.scale) for name, layer in content.layers.items()})
        found["deviations"] = network.scale_maps({name: layer.deviations for name, layer in content.layers.items()})
    return found


def _uncertainty(content: Content) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    if content.reliability:
        curve = content.reliability
        found["reliability"] = uncertainty.reliability(curve.confidence, curve.accuracy, curve.count)
    if content.entropies:
        found["entropies"] = uncertainty.entropies(content.entropies.edges, content.entropies.groups)
    for name, examples in (("certain", content.certain), ("doubtful", content.doubtful)):
        rows = [
            (example.picture, f"says {example.said}, is {example.truth}; {example.doubt:.2f} nats", example.bars)
            for example in examples
            if example.picture is not None and example.bars
        ]
        if rows:
            found[name] = uncertainty.gallery(rows)
    if content.draws:
        classes = content.draws.score == "error"
        errors = np.asarray(content.draws.errors) * (100 if classes else 1)
        label = "test error (%)" if classes else "RMSE"
        found["draws"] = uncertainty.draws(content.draws.counts, {"sampled": errors}, label)
    if content.band:
        band, labels = content.band, (content.features[0], content.target)
        intervals = (band.lower, band.upper, band.model_lower, band.model_upper)
        found["band"] = uncertainty.predictive_band(band.x, band.mean, *intervals, band.points, labels)
    if content.observed:
        seen = content.observed
        found["observed"] = uncertainty.observed(seen.observed, seen.predicted, seen.lower, seen.upper, content.target)
    if content.coverage:
        found["coverage"] = uncertainty.coverage(content.coverage.levels, content.coverage.inside)
    if content.boundary:
        maps = {"mean weights": content.boundary.single, "Bayesian average": content.boundary.averaged}
        if content.boundary.plain:
            maps = {"network": content.boundary.single}
        labels = (content.features[0], content.features[1])
        found["boundaries"] = uncertainty.boundaries(maps, content.boundary.extent, content.boundary.points, labels)
    return found
