"""What a report says, as plain numbers and strings: the page and the figures are drawn from nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "Band",
    "Boundary",
    "Content",
    "Cost",
    "Coverage",
    "Draws",
    "Entropies",
    "Example",
    "Names",
    "Observed",
    "Origin",
    "Pruning",
    "PruningPoint",
    "Reliability",
    "Spectra",
    "Training",
]


@dataclass(frozen=True)
class Names:
    """What things are called, and how to get from prepared numbers back to the reader's units."""

    title: str = "Trained network"
    target: str = "target"
    classes: tuple[str, ...] | None = None
    """In the order of the outputs; None numbers them."""
    features: tuple[str, ...] | None = None
    """Of the inputs; None numbers them."""
    feature_scales: tuple[tuple[float, float], ...] | None = None
    """Mean and standard deviation with which each input was standardised."""
    target_scale: tuple[float, float] = (0.0, 1.0)
    """The same for the target of a regression: (mean, standard deviation)."""
    image_shape: tuple[int, int, int] | None = None
    """(channels, height, width) of inputs that are pictures but come flat; (N, C, H, W) is recognised."""
    unfamiliar: str = "inputs of another kind"
    """What the unfamiliar inputs are, where there are some."""
    describe: Callable[[Tensor], list[tuple[str, str]]] | None = None
    """One prepared input as (name, value) pairs; None lists its numbers."""

    def of_class(self, index: int) -> str:
        """The name of a class."""
        return str(index) if self.classes is None else self.classes[index]

    def of_feature(self, index: int) -> str:
        """The name of an input."""
        return f"x{index}" if self.features is None else self.features[index]

    def unscaled(self, index: int, values: Tensor) -> Tensor:
        """Values of an input in its own unit."""
        mean, std = (0.0, 1.0) if self.feature_scales is None else self.feature_scales[index]
        return values * std + mean


@dataclass(frozen=True)
class Origin:
    """What is needed to make the run again."""

    command: str = ""
    seed: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """Curves over the epochs."""

    epochs: list[int]
    series: dict[str, list[float]]
    """energy, nll, lr, kl and beta of a Bayesian network, and validation_nll where there was validation."""
    sparsity: dict[str, list[float]]
    """By layer: the part of its weights that is noise (log alpha > 3)."""


@dataclass(frozen=True)
class PruningPoint:
    """The network pruned at one threshold."""

    threshold: float
    sparsity: float
    weights: int
    """Weights left, of `Pruning.weights`."""
    bytes: int
    """What is left as 32-bit numbers, parameters outside Bayesian weights included."""
    scores: dict[str, float]
    random: dict[str, float]
    """With as many weights of each layer pruned at random."""


@dataclass(frozen=True)
class Pruning:
    """The pruning curve, and what pruning at the chosen threshold gives."""

    criterion: str
    data: str
    """Which data the curve was measured on."""
    weights: int
    unpruned: dict[str, float]
    points: list[PruningPoint]
    chosen: int
    """Place of the chosen point in `points`."""
    test: dict[str, float]
    """Test scores of the network pruned there."""

    @property
    def fewer(self) -> list[float]:
        """All weights over those that are left, at each point."""
        return [self.weights / max(1, point.weights) for point in self.points]


@dataclass(frozen=True)
class Reliability:
    """Stated confidence against the part that was right, per bin; empty bins are left out."""

    confidence: list[float]
    accuracy: list[float]
    count: list[int]


@dataclass(frozen=True)
class Entropies:
    """Histograms of the predictive entropy."""

    edges: list[float]
    groups: dict[str, list[int]]
    """Counts of "right", "wrong" and, where such inputs were given, "unfamiliar"."""
    auroc: float | None
    """How well entropy tells unfamiliar inputs from test inputs: 1 always, 0.5 not at all."""
    unfamiliar: str = ""
    """What the unfamiliar inputs are."""


@dataclass(frozen=True, eq=False)
class Example:
    """One test input and what the network says about it."""

    picture: NDArray[np.uint8] | None
    """(height, width, 3), for images."""
    cells: list[tuple[str, str]]
    """Name and value, otherwise."""
    truth: str
    said: str
    right: bool
    """For a regression: whether the observed value lies in the interval."""
    bars: list[tuple[str, float, bool]]
    """The most probable classes: name, probability, whether it is the true one."""
    doubt: float
    """Entropy in nats, or the standard deviation in the target's unit."""


@dataclass(frozen=True, eq=False)
class Spectra:
    """One layer's spectrum (largest values first) and a map of its posterior standard deviations."""

    mean: list[float]
    scale: list[float]
    deviations: NDArray[np.float64]
    """(output, input), averaged in blocks down to at most 64 x 64."""


@dataclass(frozen=True)
class Cost:
    """One line of the footprint table."""

    label: str
    before: float
    after: float


@dataclass(frozen=True)
class Draws:
    """Test error against the number of posterior draws that are averaged."""

    counts: list[int]
    errors: list[list[float]]
    """One list per count: the errors of disjoint sets of draws."""
    score: Literal["error", "rmse"]


@dataclass(frozen=True)
class Band:
    """Prediction over a single input: 95 % intervals with and without the noise of the data."""

    x: list[float]
    mean: list[float]
    lower: list[float]
    upper: list[float]
    model_lower: list[float]
    model_upper: list[float]
    points: list[tuple[float, float]]
    """Training data."""


@dataclass(frozen=True)
class Observed:
    """Test predictions with 95 % intervals, and what was observed."""

    predicted: list[float]
    lower: list[float]
    upper: list[float]
    observed: list[float]


@dataclass(frozen=True)
class Coverage:
    """How many test values lie inside central intervals of each level."""

    levels: list[float]
    inside: list[float]


@dataclass(frozen=True, eq=False)
class Boundary:
    """Decisions over two inputs, of the mean weights alone and of the average over the posterior."""

    extent: tuple[float, float, float, float]
    """Left, right, bottom, top."""
    single: NDArray[np.float64]
    """Probabilities (rows from the bottom, columns, classes) of the mean weights."""
    averaged: NDArray[np.float64]
    """The same, averaged."""
    points: list[tuple[float, float, int]]
    """Training data and their classes."""

    @property
    def plain(self) -> bool:
        """Whether the average is the network itself, which has no posterior."""
        return np.array_equal(self.single, self.averaged)


@dataclass(frozen=True, eq=False)
class Content:
    """Everything a report says; parts that do not apply are None or empty."""

    title: str
    task: Literal["classes", "regression"]
    target: str
    classes: list[str]
    features: list[str]
    examples: dict[str, int]
    """How many there were to train on and to test."""
    samples: int
    """Networks that an answer averages over; a plain network is one."""
    scores: dict[str, float]
    """Test scores as of `bl.evaluate`; those of a regression in the target's unit."""
    sparsity: float | None
    training: Training | None
    pruning: Pruning | None
    costs: list[Cost]
    certain: list[Example]
    doubtful: list[Example]
    layers: dict[str, Spectra]
    draws: Draws | None
    origin: Origin
    reliability: Reliability | None = None
    entropies: Entropies | None = None
    boundary: Boundary | None = None
    observed: Observed | None = None
    coverage: Coverage | None = None
    band: Band | None = None

    @property
    def headline(self) -> Literal["accuracy", "rmse"]:
        """The score that readers ask for first."""
        return "accuracy" if self.task == "classes" else "rmse"
