"""Collect what a report says from a network and its data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.metrics import auroc, reliability_curve
from bayeslim.predictive.sample import predict
from bayeslim.pruning.sparsity import sparsity
from bayeslim.randomness import derived_seed
from bayeslim.report.content import Content, Coverage, Draws, Entropies, Names, Observed, Origin, Reliability, Training
from bayeslim.report.gallery import gallery
from bayeslim.report.judging import Judged, as_classes, judge
from bayeslim.report.planes import MOST_POINTS, band_of, boundary_of
from bayeslim.report.shrinking import layers_of, pruning_of
from bayeslim.report.units import in_target_unit
from bayeslim.training.history import History

__all__ = ["collect", "shuffled_features"]

Pair = tuple[Tensor, Tensor]
BINS = 20
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def collect(
    model: nn.Module,
    train: Pair,
    test: Pair,
    *,
    validation: Pair | None = None,
    history: History | None = None,
    likelihood: Likelihood | None = None,
    unfamiliar: Tensor | None = None,
    names: Names | None = None,
    origin: Origin | None = None,
    threshold: float | None = None,
    samples: int = 100,
    seed: int = 0,
) -> Content:
    """Measure everything that a report says about a trained network.

    Args:
        model: the network, Bayesian or not; not changed.
        train: its training inputs and targets.
        test: inputs and targets to judge by.
        validation: data on which the pruning curve is measured; None takes the training data.
        history: of its training.
        likelihood: None takes the one `fit` trained with.
        unfamiliar: inputs of another kind than the training data, to see whether the network notices.
        names: of classes, inputs and target, and their units.
        origin: command, seed and versions.
        threshold: prune at this log alpha; None takes the recommended one.
        samples: posterior samples of the test predictions.
        seed: of all samples: the same arguments give the same content.

    Raises:
        ValueError: if the data do not fit the network.

    Example:
        >>> content = collect(model, (x, y), (x_test, y_test), history=history)
        >>> content.scores["accuracy"], content.pruning.points[content.pruning.chosen].sparsity
    """
    check_network(model, "report on")
    names, chosen = names or Names(), likelihood_of(model, likelihood)
    judged = judge(model, test, chosen, samples, seed)
    classes = judged.mean.shape[1] if chosen.bounded else 0
    if chosen.bounded and judged.targets.ndim > 1 and classes > 1:
        raise ValueError(f"the network answers {classes} yes/no questions at once: reports are for one")
    classes = 2 if classes == 1 else classes
    if names.classes is not None and chosen.bounded and len(names.classes) != classes:
        raise ValueError(f"`names` has {len(names.classes)} classes, the network {classes}: they must agree")
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    pruning, costs = None, []
    if layers and all(layer.weight.factorised for layer in layers):
        data = ("training data", train) if validation is None else ("validation data", validation)
        pruning, costs = pruning_of(model, *data, test, chosen, threshold, samples, seed, names.target_scale[1])
    inputs = math.prod(test[0].shape[1:])
    tabular = test[0].ndim == 2 and test[0].is_floating_point() and names.image_shape is None
    return Content(
        title=names.title,
        task="classes" if chosen.bounded else "regression",
        target=names.target,
        classes=[names.of_class(index) for index in range(classes)],
        features=[names.of_feature(index) for index in range(inputs)] if tabular else [],
        examples={"train": len(train[0]), "test": len(test[0])},
        samples=judged.samples,
        scores=in_target_unit(judged.scores, chosen, names.target_scale[1]),
        sparsity=sparsity(model) if layers else None,
        training=_training(history, bool(layers)),
        pruning=pruning,
        costs=costs,
        reliability=_reliability(judged) if chosen.bounded else None,
        entropies=_entropies(model, judged, chosen, unfamiliar, names, samples, seed) if chosen.bounded else None,
        **gallery(judged, test[0], names, chosen.bounded),
        layers=layers_of(model),
        draws=_draws(judged, names.target_scale[1]),
        band=band_of(model, chosen, train, names, samples, seed) if tabular and inputs == 1 else None,
        boundary=boundary_of(model, chosen, train, names, samples, seed) if tabular and inputs == 2 else None,
        observed=_observed(judged, names),
        coverage=_coverage(judged),
        origin=origin or Origin(),
    )


def _training(history: History | None, bayesian: bool) -> Training | None:
    if history is None or not len(history):
        return None
    columns = ("energy", "nll", "validation_nll", *(("kl", "beta") if bayesian else ()), "lr")
    series = {
        name: [_number(record.get(name)) for record in history.records]
        for name in columns
        if any(name in record for record in history.records)
    }
    layers = history.last.get("sparsity") or {}
    parts = {name: [_number(record["sparsity"].get(name)) for record in history.records] for name in layers}
    return Training([int(record["epoch"]) + 1 for record in history.records], series, parts)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _reliability(judged: Judged) -> Reliability:
    curve = reliability_curve(as_classes(judged.mean), judged.targets.long().flatten())
    kept = curve.count > 0
    return Reliability(curve.confidence[kept].tolist(), curve.accuracy[kept].tolist(), curve.count[kept].tolist())


def _entropies(
    model: nn.Module,
    judged: Judged,
    likelihood: Likelihood,
    unfamiliar: Tensor | None,
    names: Names,
    samples: int,
    seed: int,
) -> Entropies:
    """Counts in equal bins from 0 to the entropy of knowing nothing, `ln classes`."""
    probabilities, entropy = as_classes(judged.mean), judged.entropy.flatten().double()
    right = probabilities.argmax(1) == judged.targets.long().flatten()
    groups, area = {"right": entropy[right], "wrong": entropy[~right]}, None
    if unfamiliar is not None:
        found = predict(model, unfamiliar, samples=samples, likelihood=likelihood, seed=seed, keep_samples=False)
        groups["unfamiliar"] = found.entropy.flatten().double().cpu()
        area = auroc(entropy, groups["unfamiliar"])
    top = math.log(probabilities.shape[1])
    edges = [top * index / BINS for index in range(BINS + 1)]
    counts = {name: torch.histc(values.clamp(0, top), BINS, 0, top).long().tolist() for name, values in groups.items()}
    return Entropies(edges, counts, area, names.unfamiliar)


def shuffled_features(x: Tensor, seed: int = 0) -> Tensor:
    """Inputs of another kind out of test inputs: every feature shuffled among the rows, each on its own.

    Each number is one that the network knows, their combination is not.

    Args:
        x: inputs (N, ...).
        seed: of the shuffles.

    Example:
        >>> shuffled_features(torch.eye(3)).sum(0)  # every column as it was, in another order
        tensor([1., 1., 1.])
    """
    order = torch.rand(x.shape, generator=torch.Generator().manual_seed(derived_seed(seed, 1))).argsort(0)
    return x.gather(0, order.to(x.device))


def _draws(judged: Judged, std: float) -> Draws | None:
    """The errors by number of draws, those of a regression in the target's unit."""
    if judged.draws is None or judged.draws.score == "error":
        return judged.draws
    return replace(judged.draws, errors=[[std * error for error in errors] for errors in judged.draws.errors])


def _observed(judged: Judged, names: Names) -> Observed | None:
    if judged.lower is None or judged.upper is None:
        return None
    mean, std = names.target_scale
    columns = (judged.mean, judged.lower, judged.upper, judged.targets)
    return Observed(*((values.flatten().double() * std + mean)[:MOST_POINTS].tolist() for values in columns))


def _coverage(judged: Judged) -> Coverage | None:
    """A value lies in the central interval of a level where its position is within half the level of 1/2."""
    if judged.position is None:
        return None
    distance = 2 * (judged.position.double() - 0.5).abs()
    return Coverage(list(LEVELS), [(distance <= level).double().mean().item() for level in LEVELS])
