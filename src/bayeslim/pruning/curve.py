"""How good a network stays as more of it is pruned, and how far to go."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from rich.markup import escape
from rich.table import Table
from torch import nn

from bayeslim.checks.networks import check_network
from bayeslim.checks.text import figure_text, visible
from bayeslim.masks import mask_of
from bayeslim.predictive.evaluate import Evaluation, evaluate_in_full
from bayeslim.pruning.criteria import LOG_ALPHA, Criterion, check_criterion
from bayeslim.pruning.prune import bayes_layers, prune_, random_like
from bayeslim.surgery import copied

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CurvePoint", "PruneCurve", "prune_curve", "shown", "sparsest_point"]

LEVELS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.98, 0.985, 0.99, 0.993, 0.996)
"""Sparsities at which the curve is taken by default."""


@dataclass(frozen=True)
class CurvePoint:
    """The network pruned at one threshold."""

    threshold: float
    sparsity: float
    scores: dict[str, float]
    """Validation scores, as of `evaluate`."""
    nll_rise: float
    """Rise of the nll over the unpruned network; NaN where both are infinite."""
    nll_rise_error: float
    """Standard error of that rise, from the paired differences of the examples."""
    random: dict[str, float] | None
    """Scores with as many weights per layer pruned at random."""
    per_layer: dict[str, float]
    """Sparsity of each layer."""


@dataclass(frozen=True)
class PruneCurve:
    """Validation scores against threshold and sparsity, and the recommended threshold."""

    criterion: Criterion
    unpruned: dict[str, float]
    points: list[CurvePoint]
    tolerance: float

    @property
    def best(self) -> CurvePoint:
        """The sparsest point whose nll is no worse than unpruned, within the tolerance.

        Raises:
            ValueError: if the nll is infinite with and without pruning, so that no point can be told to be better.
        """
        return sparsest_point(self.points, lambda point: self.tolerance * point.nll_rise_error)

    @property
    def decided(self) -> bool:
        """Whether there is a `best` point."""
        return any(math.isfinite(point.nll_rise) for point in self.points)

    @property
    def recommended(self) -> float:
        """The threshold of `best`: pass it to `prune_`."""
        return self.best.threshold

    def table(self) -> Table:
        """All points, for `rich.print` in 80 columns, each above its random control; the recommended one is marked."""
        names, best = list(self.unpruned), self.best if self.decided else None
        table = Table(title=f"pruning by {escape(visible(self.criterion.name))}")
        for column in ("", "threshold", "sparsity", *names):
            table.add_column(column, justify="right")
        for point in self.points:
            place = "*" if point is best else "", f"{point.threshold:.3g}", f"{point.sparsity:.2%}"
            for found, cells in ((point.scores, place), (point.random, ("", "", "random"))):
                if found is not None:
                    table.add_row(*cells, *(shown(found[name]) for name in names))
        return table

    def layer_table(self) -> Table:
        """The recommended point, layer by layer."""
        table = Table("layer", "pruned", title=f"{escape(visible(self.criterion.name))} at {self.recommended:.3g}")
        for name, part in self.best.per_layer.items():
            table.add_row(escape(visible(name)), f"{part:.2%}")
        return table

    def plot(self, score: str | None = None) -> Figure:
        """Score against sparsity, principled and random, with the recommended point (needs matplotlib).

        Args:
            score: which one; None takes accuracy where there is one, else nll.
        """
        from matplotlib.figure import Figure

        name = score or ("accuracy" if "accuracy" in self.unpruned else "nll")
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.subplots()
        parts = [point.sparsity for point in self.points]
        axes.plot(parts, [point.scores[name] for point in self.points], "o-", label=figure_text(self.criterion.name))
        if all(point.random is not None for point in self.points):
            axes.plot(parts, [(p.random or {})[name] for p in self.points], "s--", color="gray", label="random")
        axes.axhline(self.unpruned[name], color="black", linewidth=0.8, linestyle=":", label="unpruned")
        if self.decided:
            axes.axvline(self.best.sparsity, color="tab:green", linewidth=0.8, label="recommended")
        axes.set(xlabel="part of the weights pruned", ylabel=name)
        axes.legend(fontsize=8)
        return figure


def shown(score: float) -> str:
    """Four decimals, or four significant digits where those would be zeros or a long row of digits.

    Example:
        >>> shown(0.9407), shown(2.5e-6), shown(1e30)
        ('0.9407', '2.5e-06', '1e+30')
    """
    return f"{score:.4f}" if score == 0 or 1e-3 <= abs(score) < 1e5 else f"{score:.4g}"


def sparsest_point(points: Sequence[CurvePoint], allowed: Callable[[CurvePoint], float]) -> CurvePoint:
    """The point that prunes most while its nll rises by no more than it may, else the one that rises least.

    Args:
        points: of a `PruneCurve`.
        allowed: the largest rise of a point, in nats.

    Raises:
        ValueError: if no rise is a finite number.

    Example:
        >>> sparsest_point(curve.points, lambda point: 0.01).threshold
    """
    known = [point for point in points if math.isfinite(point.nll_rise)]
    if not known:
        raise ValueError(
            "the nll is infinite with and without pruning, so that no threshold is better than another: correct the "
            "rows with extreme targets, or pass a threshold of your own"
        )
    good = [point for point in known if point.nll_rise <= allowed(point)]
    return max(good or [min(known, key=lambda point: point.nll_rise)], key=lambda point: point.sparsity)


def prune_curve(
    model: nn.Module,
    validation: Any,
    criterion: Criterion = LOG_ALPHA,
    *,
    thresholds: list[float] | None = None,
    samples: int = 20,
    structure: Literal["weight", "input", "output", "head"] = "weight",
    random: bool = True,
    tolerance: float = 1.0,
    seed: int = 0,
) -> PruneCurve:
    """Prune copies of `model` at many thresholds, score each, and recommend one.

    The recommended threshold is the sparsest whose validation nll rises by at most `tolerance` standard errors over
    the unpruned network; the error is that of the paired differences between the two networks.

    Args:
        model: Bayesian network; not changed.
        validation: (x, y), a Dataset or a DataLoader.
        criterion: how weights are judged.
        thresholds: in the criterion's own units; None takes those of fixed sparsities and the published one.
        samples: posterior samples per evaluation; 0 uses the posterior mean.
        structure: prune weights, input units, output units or heads.
        random: also score a random control with the same counts per layer.
        tolerance: standard errors of nll that pruning may cost.
        seed: of the samples (the same for all points) and of the control.

    Raises:
        TypeError: for snapshots, of which each has weights of its own, and for what is no criterion.
        ValueError: if the arguments make no sense, or every threshold would empty a layer.

    Example:
        >>> curve = prune_curve(model, (x_val, y_val))
        >>> prune_(model, threshold=curve.recommended)
    """
    check_network(model, "prune")
    check_criterion(criterion)
    if tolerance < 0:
        raise ValueError(f"`tolerance` must not be negative, got {tolerance}: pass e.g. 1.0")
    chosen = _default_thresholds(model, criterion, structure) if thresholds is None else list(thresholds)
    if isinstance(thresholds, str):
        raise ValueError(f"`thresholds` must be a list of floats, got {thresholds!r}: pass e.g. [1.0, 3.0], or None")
    if not chosen:
        raise ValueError("`thresholds` is empty: pass at least one, or None")
    base = evaluate_in_full(model, validation, samples, seed=seed)
    points = [
        point
        for threshold in chosen
        if (point := _point(model, validation, criterion, threshold, samples, structure, random, seed, base))
    ]
    if not points:
        raise ValueError("every threshold would empty a layer: pass `thresholds` that prune less")
    return PruneCurve(criterion, base.scores, sorted(points, key=lambda p: p.sparsity), tolerance)


def _point(
    model: nn.Module,
    validation: Any,
    criterion: Criterion,
    threshold: float,
    samples: int,
    structure: Literal["weight", "input", "output", "head"],
    random: bool,
    seed: int,
    base: Evaluation,
) -> CurvePoint | None:
    """One point of the curve; None where a layer would be emptied."""
    pruned = copied(model)
    parts = prune_(pruned, criterion, threshold=threshold, structure=structure, allow_empty=True)
    if any(part == 1 for part in parts.values()):
        return None
    found = evaluate_in_full(pruned, validation, samples, seed=seed)
    rise = base.log_densities - found.log_densities
    control = evaluate_in_full(random_like(pruned, seed), validation, samples, seed=seed).scores if random else None
    layers = bayes_layers(pruned)
    sizes = {name: layer.weight.mean().numel() for name, layer in layers.items()}
    per_layer = {name: 1 - mask_of(layer.weight).double().mean().item() for name, layer in layers.items()}
    total = sum(per_layer[name] * size for name, size in sizes.items()) / sum(sizes.values())
    error = rise.std().item() / math.sqrt(len(rise)) if len(rise) > 1 else 0.0
    return CurvePoint(threshold, total, found.scores, rise.mean().item(), error, control, per_layer)


@torch.no_grad()
def _default_thresholds(model: nn.Module, criterion: Criterion, structure: str) -> list[float]:
    """The thresholds of fixed sparsities, and the published one."""
    layers = bayes_layers(model)
    if not layers:
        raise ValueError("`model` has no Bayesian layers: there is nothing to prune")
    scores = [
        criterion.scores(layer.weight, "weight" if structure == "head" else structure).expand(layer.weight.mean().shape)
        for layer in layers.values()
    ]
    ordered = torch.cat([score.flatten() for score in scores]).sort().values
    cuts = {ordered[min(len(ordered) - 1, round(level * len(ordered)))].item() for level in LEVELS}
    natural = {-cut if criterion.dead_above else cut for cut in cuts if math.isfinite(cut)}
    return sorted(natural | {criterion.threshold})
