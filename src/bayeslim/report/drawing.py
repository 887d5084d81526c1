"""All figures of a report: for its page, and as files for papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslim.analysis import figures
from bayeslim.analysis.figures.style import save
from bayeslim.report.content import Content, Training

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
    drawn = draw_figures(content) | _galleries(content)
    return [save(figure, folder / f"{name}.{kind}") for name, (figure,) in drawn.items() for kind in formats]


def draw_figures(content: Content, apart: bool = False) -> dict[str, list[Figure]]:
    """Every figure that applies, by name.

    Args:
        content: what they show.
        apart: draw each panel as a figure of its own, which pages arrange.
    """

    def panels(draw: Callable[[Mapping[str, Any]], Figure], parts: Mapping[str, Any]) -> list[Figure]:
        return [draw({name: part}) for name, part in parts.items()] if apart else [draw(parts)]

    found: dict[str, list[Figure]] = {}
    if (curves := content.training) is not None:
        found["training"] = _training(curves, apart)
        if curves.sparsity:
            found["sparsity"] = [figures.sparsity(curves.epochs, curves.sparsity)]
    if content.pruning:
        found |= _pruning(content)
    if content.layers:
        layers = dict(list(content.layers.items())[: MOST_LAYERS if apart else None])
        found["spectra"] = panels(figures.spectra, {name: (layer.mean, layer.scale) for name, layer in layers.items()})
        found["deviations"] = panels(figures.scale_maps, {name: layer.deviations for name, layer in layers.items()})
    if (curve := content.reliability) is not None:
        found["reliability"] = [figures.reliability(curve.confidence, curve.accuracy, curve.count)]
    if content.entropies:
        found["entropies"] = [figures.entropies(content.entropies.edges, content.entropies.groups)]
    if content.draws:
        classes = content.draws.score == "error"
        errors = np.asarray(content.draws.errors) * (100 if classes else 1)
        label = "test error (%)" if classes else "RMSE"
        found["draws"] = [figures.draws(content.draws.counts, {"sampled": errors}, label)]
    if (band := content.band) is not None:
        labels = (content.features[0], content.target)
        intervals = (band.lower, band.upper, band.model_lower, band.model_upper)
        found["band"] = [figures.predictive_band(band.x, band.mean, *intervals, band.points, labels)]
    if (seen := content.observed) is not None:
        columns = (seen.observed, seen.predicted, seen.lower, seen.upper)
        found["observed"] = [figures.observed(*columns, content.target)]
    if content.coverage:
        found["coverage"] = [figures.coverage(content.coverage.levels, content.coverage.inside)]
    if (plane := content.boundary) is not None:
        average = plane.averaged
        doubt = -np.sum(average * np.log(np.maximum(average, 1e-300)), -1) / math.log(average.shape[-1])
        maps = {"network": plane.single} if plane.plain else {"mean weights": plane.single, "Bayesian average": average}
        names = (content.features[0], content.features[1])
        draw = lambda part: figures.boundaries(part, plane.extent, plane.points, names)  # noqa: E731
        found["boundaries"] = panels(draw, maps | {"doubt (dark: coin flip)": doubt})
    return found


MOST_LAYERS = 12
"""Layers whose posteriors a page shows."""


def _training(curves: Training, apart: bool) -> list[Figure]:
    if not apart:
        return [figures.training(curves.epochs, curves.series)]
    groups = [[name for name in names if name in curves.series] for names in figures.CURVES.values()]
    return [figures.training(curves.epochs, {name: curves.series[name] for name in names}) for names in groups if names]


def _pruning(content: Content) -> dict[str, list[Figure]]:
    assert content.pruning is not None
    pruning, name, fewer = content.pruning, content.headline, content.pruning.fewer
    chosen = pruning.points[pruning.chosen]
    scores, random = ([getattr(point, part)[name] for point in pruning.points] for part in ("scores", "random"))
    unpruned = pruning.unpruned[name]
    bars = {"nothing": [unpruned], "noise": [chosen.scores[name]], "at random": [chosen.random[name]]}
    return {
        "pruning_curve": [figures.pruning_curve(fewer, scores, random, unpruned, fewer[pruning.chosen], name)],
        "pruning_bars": [figures.pruning_bars(bars, name)],
    }


def _galleries(content: Content) -> dict[str, list[Figure]]:
    """Pictures with their answers, which a page sets as text."""
    found: dict[str, list[Figure]] = {}
    for name, examples in (("certain", content.certain), ("doubtful", content.doubtful)):
        rows = [
            (example.picture, f"says {example.said}, is {example.truth}; {example.doubt:.2f} nats", example.bars)
            for example in examples
            if example.picture is not None and example.bars
        ]
        if rows:
            found[name] = [figures.gallery(rows)]
    return found
