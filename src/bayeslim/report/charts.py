"""The charts of the page, each a function from its part of the content to SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from bayeslim.report.content import (
    Band,
    Boundary,
    Coverage,
    Draws,
    Entropies,
    Observed,
    Pruning,
    Reliability,
    Spectra,
    Training,
)
from bayeslim.report.pictures import class_map, png_address, ramp
from bayeslim.report.svg import Chart

__all__ = [
    "band",
    "boundary",
    "coverage",
    "draws",
    "entropies",
    "observed",
    "pruning_bars",
    "pruning_chart",
    "reliability",
    "sparsity",
    "spectrum",
    "training",
]

Figure = tuple[str, str]
"""A caption and the chart below it."""
ACCENT = 0
FULL, HALF, SMALL = (940, 330), (456, 330), (294, 220)
"""Sizes of charts that take the page, a half or a third of its width."""


def training(curves: Training) -> list[Figure]:
    """Loss and its part from the data; the KL; its weight; the learning rate."""
    panels = (
        ("Loss per example (energy), and its part from the data (nll)", ("energy", "nll", "validation_nll"), "nats"),
        ("Information stored in the weights (KL)", ("kl",), "nats"),
        ("Weight of the KL in the loss (beta)", ("beta",), "beta"),
        ("Learning rate", ("lr",), "step size"),
    )
    found: list[Figure] = []
    for caption, columns, unit in panels:
        series = {name: curves.series[name] for name in columns if name in curves.series}
        if series:
            zero = [0.0] if len(columns) == 1 else []
            chart = Chart(
                caption, _span(curves.epochs), _padded([*_flat(series.values()), *zero]), "epoch", unit, (456, 240)
            )
            for colour, (name, values) in enumerate(series.items()):
                chart.line(curves.epochs, values, colour, tip=name)
            found.append((caption, chart.markup()))
    return found


def sparsity(curves: Training) -> str:
    """The part of each layer's weights that is noise, over the epochs."""
    chart = Chart("Noise weights per layer over the epochs", _span(curves.epochs), (0, 1), "epoch", "noise weights",
                  FULL, percent="y")  # fmt: skip
    few = len(curves.sparsity) <= 6
    for colour, (name, values) in enumerate(curves.sparsity.items()):
        chart.line(curves.epochs, values, colour if few else ACCENT, "" if few else "thin", tip=f"layer {name}")
    return chart.markup()


def pruning_chart(pruning: Pruning, score: str) -> tuple[str, list[float]]:
    """Score against how many times fewer weights are left, with a line for the slider and its place at each point."""
    points, fewer = pruning.points, pruning.fewer
    kept, random = [point.scores[score] for point in points], [point.random[score] for point in points]
    chart = Chart(
        f"{score} against the number of weights left",
        (1.0, max(2.0, max(fewer) * 1.05)),
        _padded([*kept, *random, pruning.unpruned[score]]),
        "times fewer weights",
        LABELS[score],
        FULL,
        log_x=True,
        percent="y" if score == "accuracy" else "",
    )
    chart.segment((1, pruning.unpruned[score]), (chart.x_range[1], pruning.unpruned[score]), "guide")
    chart.line(fewer, random, 1, "dashed", tip="as many removed at random")
    chart.line(fewer, kept, ACCENT, tip="the noisiest weights removed")
    tips = [f"{point.sparsity:.1%} removed: {value:.4g}" for point, value in zip(points, kept, strict=True)]
    chart.dots(fewer, kept, ACCENT, tips)
    chart.segment(
        (fewer[pruning.chosen], chart.y_range[0]), (fewer[pruning.chosen], chart.y_range[1]), "cursor", "cursor"
    )
    return chart.markup(), [chart.px(value) for value in fewer]


def pruning_bars(pruning: Pruning, score: str) -> str:
    """Unpruned, pruned at the chosen threshold, and as many weights pruned at random."""
    point = pruning.points[pruning.chosen]
    values = [pruning.unpruned[score], point.scores[score], point.random[score]]
    top = 1.0 if score == "accuracy" else max(values) * 1.08
    chart = Chart("Not pruned, noise pruned, pruned at random", (0, 3), (0, top), "", LABELS[score],
                  (456, 280), percent="y" if score == "accuracy" else "")  # fmt: skip
    for place, (value, colour) in enumerate(zip(values, (0, 0, 1), strict=True)):
        chart.box((place + 0.22, place + 0.78), (0, value), colour, f"{value:.4g}", "faded" if place == 0 else "")
    chart.x_ticks = [(0.5, "nothing removed"), (1.5, "noise removed"), (2.5, "as many at random")]
    return chart.markup()


def reliability(curve: Reliability) -> str:
    """How often it was right against how sure it said it was; larger discs hold more examples."""
    chart = Chart("Reliability diagram", (0, 1), (0, 1), "stated confidence", "actually right", HALF, percent="xy")
    chart.segment((0, 0), (1, 1), "guide")
    chart.line(curve.confidence, curve.accuracy, ACCENT, "thin")
    most = max(curve.count)
    for confidence, accuracy, count in zip(curve.confidence, curve.accuracy, curve.count, strict=True):
        text = f"{count} examples: says {confidence:.1%}, right {accuracy:.1%}"
        chart.dots([confidence], [accuracy], ACCENT, [text], round(3 + 7 * math.sqrt(count / most), 2))
    return chart.markup()


def entropies(found: Entropies) -> str:
    """Part of each group per bin of entropy."""
    parts = {name: [count / max(1, sum(counts)) for count in counts] for name, counts in found.groups.items()}
    top = max(max(values) for values in parts.values())
    chart = Chart("Histograms of doubt", (0, found.edges[-1]), (0, max(top * 1.05, 1e-9)), "doubt (entropy, nats)",
                  "part of the group", HALF, percent="y")  # fmt: skip
    width = (found.edges[1] - found.edges[0]) / len(parts)
    for place, (name, values) in enumerate(parts.items()):
        for edge, part, count in zip(found.edges, values, found.groups[name], strict=False):
            if count:
                left = edge + place * width
                chart.box((left, left + 0.92 * width), (0, part), _GROUP_COLOURS[name], f"{name}: {count} examples")
    return chart.markup()


def spectrum(name: str, layer: Spectra) -> str:
    """Explained part per singular value, of means and of standard deviations."""
    ranks = min(10, len(layer.mean))
    places = list(range(1, ranks + 1))
    chart = Chart(f"Spectrum of layer {name}", (0.5, ranks + 0.5), (0, 1), "singular value", "part explained", SMALL,
                  percent="y")  # fmt: skip
    chart.x_ticks = [(place, str(place)) for place in places]
    for colour, values in ((1, layer.mean), (ACCENT, layer.scale)):
        chart.line(places, values[:ranks], colour)
        chart.dots(places, values[:ranks], colour, [f"{value:.1%}" for value in values[:ranks]])
    return chart.markup()


def draws(found: Draws) -> str:
    """Mean and spread of the error over repetitions, against the number of draws."""
    means = [float(np.mean(errors)) for errors in found.errors]
    spread = [float(np.std(errors, ddof=1)) for errors in found.errors]
    ends = [m + s for m, s in zip(means, spread, strict=True)] + [m - s for m, s in zip(means, spread, strict=True)]
    chart = Chart("Test error against the number of draws", (found.counts[0] * 0.8, found.counts[-1] * 1.25),
                  _padded(ends), "networks drawn and averaged", "test error" if found.score == "error" else "RMSE",
                  HALF, log_x=True, percent="y" if found.score == "error" else "")  # fmt: skip
    for count, mean, half in zip(found.counts, means, spread, strict=True):
        chart.segment((count, mean - half), (count, mean + half), "whisker")
    chart.line(found.counts, means, ACCENT)
    chart.dots(
        found.counts, means, ACCENT, [f"{mean:.4g} ± {half:.2g}" for mean, half in zip(means, spread, strict=True)]
    )
    return chart.markup()


def band(found: Band, x_label: str, y_label: str) -> str:
    """Mean, 95 % interval of the function, 95 % interval of a new value, and the training data."""
    ys = [*found.lower, *found.upper, *(y for _, y in found.points)]
    chart = Chart("Prediction over the input", _span(found.x), _padded(ys), x_label, y_label, FULL)
    chart.area(found.x, found.lower, found.upper, ACCENT, "faint")
    chart.area(found.x, found.model_lower, found.model_upper, ACCENT)
    chart.dots([x for x, _ in found.points], [y for _, y in found.points], 1, radius=2)
    chart.line(found.x, found.mean, ACCENT)
    return chart.markup()


def observed(found: Observed, unit: str) -> str:
    """Predicted values with their intervals against observed ones."""
    both = _span([*found.predicted, *found.observed])
    chart = Chart("Predicted against observed", both, _span([*found.lower, *found.upper, *both]), f"observed {unit}",
                  f"predicted {unit}", HALF)  # fmt: skip
    for low, high, x in zip(found.lower, found.upper, found.observed, strict=True):
        chart.segment((x, low), (x, high), "whisker")
    chart.segment((both[0], both[0]), (both[1], both[1]), "guide")
    chart.dots(found.observed, found.predicted, ACCENT, radius=2.5)
    return chart.markup()


def coverage(found: Coverage) -> str:
    """The part of values inside intervals against the part that should be."""
    chart = Chart("Coverage of intervals", (0, 1), (0, 1), "stated", "actually inside", HALF, percent="xy")
    chart.segment((0, 0), (1, 1), "guide")
    chart.line(found.levels, found.inside, ACCENT)
    tips = [
        f"{level:.0%} intervals hold {inside:.1%}" for level, inside in zip(found.levels, found.inside, strict=True)
    ]
    chart.dots(found.levels, found.inside, ACCENT, tips)
    return chart.markup()


def boundary(found: Boundary, features: list[str]) -> list[Figure]:
    """Decisions of the mean weights and of the average, where they differ, and where the average doubts."""
    averaged = found.averaged
    entropy = -np.sum(averaged * np.log(np.maximum(averaged, 1e-300)), -1) / math.log(averaged.shape[-1])
    panels = (
        *([] if found.plain else [("One network: the mean weights", class_map(found.single))]),
        ("The network" if found.plain else "Average over the posterior", class_map(averaged)),
        ("Its doubt (dark: coin flip)", ramp(entropy)),
    )
    left, right, bottom, top = found.extent
    charts: list[Figure] = []
    for caption, pixels in panels:
        chart = Chart(caption, (left, right), (bottom, top), features[0], features[1], (294, 300))
        chart.image(png_address(np.ascontiguousarray(pixels[::-1])))
        for x, y, label in found.points:
            chart.dots([x], [y], label % 10, radius=1.8)
        charts.append((caption, chart.markup()))
    return charts


LABELS = {"accuracy": "accuracy", "rmse": "root mean squared error", "nll": "negative log-likelihood"}
_GROUP_COLOURS = {"right": 0, "wrong": 1, "unfamiliar": 2}


def _flat(columns: Iterable[Iterable[float]]) -> list[float]:
    return [value for column in columns for value in column]


def _span(values: Iterable[float]) -> tuple[float, float]:
    """The range of all finite values."""
    finite = [float(value) for value in values if math.isfinite(value)]
    return (min(finite), max(finite)) if finite else (0.0, 1.0)


def _padded(values: Iterable[float]) -> tuple[float, float]:
    """The range of all finite values and a little more at both ends, except where it ends at 0."""
    low, high = _span(values)
    more = 0.04 * (high - low)
    return (low - more if low != 0 else low, high + more)
