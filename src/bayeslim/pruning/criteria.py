"""Criteria: what makes a weight, a unit, a channel or a head worth keeping."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bayeslim.checks.names import did_you_mean
from bayeslim.log_alpha import log_alpha
from bayeslim.posteriors.base import Posterior

__all__ = [
    "LOG_ALPHA",
    "MAGNITUDE",
    "MEAN_SQUARE",
    "RANGE",
    "SIGNAL_TO_NOISE",
    "STRUCTURES",
    "Criterion",
    "check_criterion",
]

STRUCTURES = ("weight", "input", "output", "head")
"""What is kept or dropped as one: a weight, all weights of an input or output unit, or of an attention head."""


@dataclass(frozen=True)
class Criterion:
    """A score per weight, how the scores of a group combine, and where to cut.

    A weight or group is kept if its score reaches the threshold. `dead_above` marks the one published criterion that
    counts the other way round (log alpha): thresholds are given and shown in its own units all the same.
    """

    name: str
    score: Callable[[Tensor, Tensor], Tensor]
    """(mean, variance) -> score per weight; larger is worth more."""
    threshold: float
    """The published threshold, in the criterion's own units."""
    combine: Callable[[Tensor, tuple[int, ...]], Tensor]
    """(scores, axes of the group) -> score of the group, axes kept."""
    dead_above: bool = False

    def cut(self, threshold: float | None) -> float:
        """The least score that is kept.

        Raises:
            ValueError: if the threshold is not finite, or negative where scores cannot be.
        """
        if isinstance(threshold, str):
            raise ValueError(f"`threshold` must be a finite float, got {threshold!r}: pass e.g. {self.threshold}")
        value = self.threshold if threshold is None else float(threshold)
        if not math.isfinite(value):
            raise ValueError(f"`threshold` must be a finite float, got {value}: pass e.g. {self.threshold}")
        if value < 0 and not self.dead_above:
            raise ValueError(
                f"`threshold` of {self.name} must not be negative, got {value}: its scores start at 0; pass e.g. "
                f"{self.threshold}"
            )
        return -value if self.dead_above else value

    def scores(self, posterior: Posterior, structure: str = "weight", heads: int = 1) -> Tensor:
        """The score of every weight or group, broadcastable to the weight; pruned weights score minus infinity.

        Args:
            posterior: over a weight `(out, in / groups, *kernel)`.
            structure: one of `STRUCTURES`.
            heads: attention heads that the output axis is divided into, for "head".
        """
        if structure not in STRUCTURES:
            raise ValueError(f"`structure` must be one of {', '.join(STRUCTURES)}, got {structure!r}")
        mean, variance, kept = posterior.mean(), posterior.variance(), posterior.kept()
        if kept is not None:
            variance = variance.masked_fill(kept == 0, 1)  # pruned weights are the weakest of a group, not the surest
        scores = self.score(mean, variance)
        if scores.numel() and bool(scores.amax().isnan()):  # one pass, as the largest of them is NaN if any is
            raise ValueError(f"the {self.name} scores hold NaN: the posterior has diverged, train it again")
        if structure == "weight":
            return scores if kept is None else scores.masked_fill(kept == 0, -math.inf)
        if structure == "head":
            split = scores.unflatten(0, (heads, -1))
            combined = self.combine(split, tuple(range(1, split.ndim)))
            return combined.expand(-1, split.shape[1], *[-1] * (split.ndim - 2)).flatten(0, 1)
        axes = tuple(axis for axis in range(scores.ndim) if axis != (1 if structure == "input" else 0))
        combined = self.combine(scores, axes)
        if kept is None:
            return combined
        return combined.masked_fill(kept.amax(axes, keepdim=True) == 0, -math.inf)

    def keep(self, posterior: Posterior, threshold: float | None = None, structure: str = "weight") -> Tensor:
        """Where the score reaches the threshold: a boolean tensor in the shape of the weight."""
        return (self.scores(posterior, structure) >= self.cut(threshold)).expand(posterior.mean().shape)


def _strongest(scores: Tensor, axes: tuple[int, ...]) -> Tensor:
    """A group lives as long as one of its weights does."""
    return scores.amax(axes, keepdim=True)


def _average(scores: Tensor, axes: tuple[int, ...]) -> Tensor:
    return scores.mean(axes, keepdim=True)


def _range(means: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Signed range, and at least the largest magnitude: equal large weights are not a dead channel."""
    top, bottom = means.amax(axes, keepdim=True), means.amin(axes, keepdim=True)
    return torch.maximum(top - bottom, torch.maximum(top.abs(), bottom.abs()))


def _signal_to_noise(mean: Tensor, variance: Tensor) -> Tensor:
    return torch.exp(-0.5 * log_alpha(mean, variance))


SIGNAL_TO_NOISE = Criterion("signal-to-noise", _signal_to_noise, 0.83, _strongest)
"""`|mean| / std`; 0.83 is one row of Graves 2011's pruning table. The same order as log alpha."""

LOG_ALPHA = Criterion("log alpha", lambda mean, variance: -log_alpha(mean, variance), 3.0, _strongest, dead_above=True)
"""`ln(variance / mean^2)`; above 3 the dropout rate is 0.95 (Molchanov et al. 2017)."""

MAGNITUDE = Criterion("magnitude", lambda mean, variance: mean.abs(), 1e-2, _strongest)
"""`|mean|`; 1e-2 in the empirical-Bayes paper. With `amount` and global scope: L1 pruning."""

MEAN_SQUARE = Criterion("mean square", lambda mean, variance: mean.square(), 1e-3, _average)
"""`mean(w^2)` over a group: the hard threshold of spike-and-slab pruning for units (arXiv 2210.12957, eq. 10)."""

RANGE = Criterion("range", lambda mean, variance: mean, 1e-2, _range)
"""`max - min` over a channel (arXiv 2210.12957, eq. 9), never below its largest magnitude."""

CRITERIA = {
    "LOG_ALPHA": LOG_ALPHA,
    "MAGNITUDE": MAGNITUDE,
    "MEAN_SQUARE": MEAN_SQUARE,
    "RANGE": RANGE,
    "SIGNAL_TO_NOISE": SIGNAL_TO_NOISE,
}
"""By the names that they have in `bayeslim.pruning`."""


def check_criterion(criterion: object) -> None:
    """Refuse what is no criterion, such as its name.

    Raises:
        TypeError: with what to pass instead.
    """
    if isinstance(criterion, Criterion):
        return
    if isinstance(criterion, int | float):
        advice = f"pass threshold={criterion} by name"
    elif isinstance(criterion, str):
        likely = did_you_mean(criterion.upper().replace(" ", "_").replace("-", "_"), CRITERIA, 1)
        advice = f"{likely}pass e.g. bl.pruning.MAGNITUDE, without quotes"
    else:
        advice = f"pass one of bl.pruning's {', '.join(CRITERIA)}"
    raise TypeError(f"`criterion` must be a Criterion, got {criterion!r}: {advice}")
