"""What pruning would give, and what the posterior of each layer looks like."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bayeslim.analysis.low_rank import named_spectra
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.predictive.evaluate import evaluate
from bayeslim.predictive.inputs import input_batches
from bayeslim.pruning.compact import compact
from bayeslim.pruning.curve import CurvePoint, prune_curve
from bayeslim.pruning.footprint import footprint
from bayeslim.pruning.prune import bayes_layers, prune_
from bayeslim.report.content import Cost, Pruning, PruningPoint, Spectra
from bayeslim.report.judging import Subject
from bayeslim.surgery import copied

__all__ = ["layers_of", "pruning_of"]

MOST_ROWS = 2000
"""Examples on which the pruning curve is measured."""
SAMPLES = 20
"""Posterior samples per measurement."""
RANKS = 20
"""Singular values that are kept."""
MAP_SIDE = 64
"""Largest side of a map of deviations."""
WEIGHT_BYTES = 4


@torch.no_grad()
def pruning_of(
    subject: Subject, name: str, data: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], threshold: float | None
) -> tuple[Pruning | None, list[Cost]]:
    """The pruning curve on `data`, the network pruned at the chosen point, and what it costs before and after.

    None and no costs if no threshold is given and the curve recommends none, see `PruneCurve.best`.

    Args:
        subject: Bayesian network; not changed.
        name: of `data`, for the reader.
        data: inputs and targets to choose by.
        test: inputs and targets to judge the pruned network by.
        threshold: None takes the recommended one.

    Example:
        >>> pruning_of(subject, "validation data", (x, y), test, None)[0].chosen
    """
    known, seed = copied(subject.model), subject.seed
    remember_likelihood_(known, subject.likelihood)
    rows = (data[0][:MOST_ROWS], data[1][:MOST_ROWS])
    curve = prune_curve(known, rows, samples=SAMPLES, seed=seed)
    if threshold is None and not curve.decided:
        return None, []
    points = list(curve.points)
    if threshold is not None and threshold not in [point.threshold for point in points]:
        points += prune_curve(known, rows, thresholds=[threshold], samples=SAMPLES, seed=seed).points
        points.sort(key=lambda point: point.sparsity)
    wanted = curve.recommended if threshold is None else threshold
    pruned = copy.deepcopy(known)
    prune_(pruned, threshold=wanted)
    example = next(input_batches(known, data[0][:1], 1))  # on the device and in the type of the network
    small = _compacted(pruned, example)
    sizes = {layer_name: layer.weight.mean().numel() for layer_name, layer in bayes_layers(known).items()}
    before, after = footprint(known, example, 0), footprint(small, example, 0)
    others = before.mean_bytes - WEIGHT_BYTES * sum(sizes.values())

    def shown(point: CurvePoint) -> PruningPoint:
        left = round(sum((1 - point.per_layer[layer]) * size for layer, size in sizes.items()))
        return PruningPoint(
            point.threshold,
            point.sparsity,
            left,
            others + WEIGHT_BYTES * left,
            subject.in_own_unit(point.scores),
            subject.in_own_unit(point.random or {}),
        )

    pruning = Pruning(
        criterion=curve.criterion.name,
        data=name,
        weights=sum(sizes.values()),
        unpruned=subject.in_own_unit(curve.unpruned),
        points=[shown(point) for point in points],
        chosen=[point.threshold for point in points].index(wanted),
        test=subject.in_own_unit(evaluate(small, test, samples=subject.samples, seed=seed)),
    )
    costs = [
        Cost("weights that are not zero", before.nonzero, after.nonzero),
        Cost("weights in memory", before.weights, after.weights),
        Cost("multiply-adds per example", before.multiply_adds or 0, after.multiply_adds or 0),
        Cost("plain file, KiB", before.mean_bytes / 1024, after.mean_bytes / 1024),
        Cost("Bayesian file, KiB", before.bayesian_bytes / 1024, after.bayesian_bytes / 1024),
    ]
    return pruning, costs


def _compacted(pruned: nn.Module, example: Tensor) -> nn.Module:
    """The smaller network where it can be traced, else the pruned one."""
    try:
        return compact(pruned, example)
    except ValueError:
        return pruned


@torch.no_grad()
def layers_of(model: nn.Module) -> dict[str, Spectra]:
    """Spectra of means and deviations, and a map of the deviations, by layer name.

    Example:
        >>> layers_of(bl.mlp([8, 4, 2]))["0"].deviations.shape
        (4, 8)
    """
    found: dict[str, Spectra] = {}
    spectra = named_spectra(model)
    for name, layer in bayes_layers(model).items():
        mean, scale = (part[:RANKS].tolist() for part in (spectra[name].mean, spectra[name].scale))
        deviations = layer.weight.variance().sqrt().flatten(1).double().cpu().numpy()
        found[name] = Spectra(mean, scale, _blocks(deviations))
    return found


def _blocks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Averages of blocks, so that no side is longer than `MAP_SIDE`."""
    for axis in (0, 1):
        starts = np.unique(np.linspace(0, values.shape[axis], min(MAP_SIDE, values.shape[axis]) + 1).astype(int))
        widths = np.diff(starts).reshape((-1, 1) if axis == 0 else (1, -1))
        values = np.add.reduceat(values, starts[:-1], axis) / widths
    return values
