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
from bayeslim.pruning.sparsity import sparsity
from bayeslim.report.content import Content, Coverage, Draws, Entropies, Names, Observed, Origin, Reliability, Training
from bayeslim.report.gallery import gallery
from bayeslim.report.judging import Judged, Subject, as_classes, judge
from bayeslim.report.planes import MOST_POINTS, band_of, boundary_of
from bayeslim.report.shrinking import layers_of, pruning_of
from bayeslim.runtime.seeds import derived_seed
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
    subject = Subject(model, likelihood_of(model, likelihood), names or Names(), samples, seed)
    judged, names, bounded = judge(subject, test), subject.names, subject.likelihood.bounded
    classes = _classes(judged, names) if bounded else []
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    pruning, costs = None, []
    if layers and all(layer.weight.factorised for layer in layers):
        data = ("training data", train) if validation is None else ("validation data", validation)
        pruning, costs = pruning_of(subject, *data, test, threshold)
    inputs = math.prod(test[0].shape[1:])
    tabular = test[0].ndim == 2 and test[0].is_floating_point() and names.image_shape is None
    own = _of_classes(subject, judged, unfamiliar) if bounded else _of_values(judged, names)
    if tabular and inputs == 2 and bounded:
        own["boundary"] = boundary_of(subject, train)
    if tabular and inputs == 1 and not bounded:
        own["band"] = band_of(subject, train)
    return Content(
        title=names.title,
        task="classes" if bounded else "regression",
        target=names.target,
        classes=classes,
        features=[names.of_feature(index) for index in range(inputs)] if tabular else [],
        examples={"train": len(train[0]), "test": len(test[0])},
        samples=judged.samples,
        scores=subject.in_own_unit(judged.scores),
        sparsity=sparsity(model) if layers else None,
        training=_training(history, bool(layers)),
        pruning=pruning,
        costs=costs,
        layers=layers_of(model),
        draws=_draws(judged, names.target_scale[1]),
        origin=origin or Origin(),
        **gallery(judged, test[0], subject),
        **own,
    )


def _classes(judged: Judged, names: Names) -> list[str]:
    """The names of the classes; a ValueError if those given are not as many, or there are several questions at once."""
    count = judged.mean.shape[1]
    if judged.targets.ndim > 1 and count > 1:
        raise ValueError(f"the network answers {count} yes/no questions at once: reports are for one")
    count = max(count, 2)
    if names.classes is not None and len(names.classes) != count:
        raise ValueError(f"`names` has {len(names.classes)} classes, the network {count}: they must agree")
    return [names.of_class(index) for index in range(count)]


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


def _of_classes(subject: Subject, judged: Judged, unfamiliar: Tensor | None) -> dict[str, Any]:
    """Reliability, and entropies in equal bins from 0 to that of knowing nothing, `ln classes`."""
    probabilities, entropy = as_classes(judged.mean), judged.entropy.flatten().double()
    labels = judged.targets.long().flatten()
    curve = reliability_curve(probabilities, labels)
    columns = (part[curve.count > 0].tolist() for part in (curve.confidence, curve.accuracy, curve.count))
    right = probabilities.argmax(1) == labels
    groups, area = {"right": entropy[right], "wrong": entropy[~right]}, None
    if unfamiliar is not None:
        groups["unfamiliar"] = subject.predict(unfamiliar).entropy.flatten().double().cpu()
        area = auroc(entropy, groups["unfamiliar"])
    top = math.log(probabilities.shape[1])
    edges = [top * index / BINS for index in range(BINS + 1)]
    counts = {name: torch.histc(values.clamp(0, top), BINS, 0, top).long().tolist() for name, values in groups.items()}
    return {
        "reliability": Reliability(*columns),
        "entropies": Entropies(edges, counts, area, subject.names.unfamiliar),
    }


def _of_values(judged: Judged, names: Names) -> dict[str, Any]:
    """Predictions beside observations, and the coverage of intervals.

    A value lies in the central interval of a level where its position is within half the level of 1/2.
    """
    assert judged.lower is not None and judged.upper is not None and judged.position is not None
    mean, std = names.target_scale
    columns = (judged.mean, judged.lower, judged.upper, judged.targets)
    observed = Observed(*((values.flatten().double() * std + mean)[:MOST_POINTS].tolist() for values in columns))
    distance = 2 * (judged.position.double() - 0.5).abs()
    inside = [(distance <= level).double().mean().item() for level in LEVELS]
    return {"observed": observed, "coverage": Coverage(list(LEVELS), inside)}


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
