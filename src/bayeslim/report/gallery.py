"""The test inputs of which a network is most, and least, sure."""

from __future__ import annotations

from torch import Tensor

from bayeslim.analysis.figures.pictures import input_picture
from bayeslim.report.content import Example, Names
from bayeslim.report.judging import Judged, Subject, as_classes
from bayeslim.report.words import number

__all__ = ["gallery"]

SHOWN = 6
MOST_BARS = 10
MOST_CELLS = 8


def gallery(judged: Judged, x: Tensor, subject: Subject) -> dict[str, list[Example]]:
    """The most certain and the most doubtful examples, by entropy or by predictive standard deviation.

    There are none if all are equally certain, as to a plain network with the same noise everywhere.

    Args:
        judged: the network's answers.
        x: the inputs.
        subject: the network.

    Returns:
        `{"certain": ..., "doubtful": ...}`, the extreme ones first.

    Example:
        >>> gallery(judged, x, subject)["doubtful"][0].doubt
    """
    names, bounded = subject.names, subject.likelihood.bounded
    doubt = judged.entropy if bounded else judged.variance.sqrt()
    doubt = doubt.flatten(1).sum(1) if doubt.ndim > 1 else doubt
    order = doubt.argsort(stable=True).tolist()
    count = min(SHOWN, len(order) // 2) if doubt.min() < doubt.max() else 0
    shown = _class_example if bounded else _value_example
    return {
        "certain": [shown(judged, x, names, index) for index in order[:count]],
        "doubtful": [shown(judged, x, names, index) for index in order[::-1][:count]],
    }


def _class_example(judged: Judged, x: Tensor, names: Names, index: int) -> Example:
    probabilities = as_classes(judged.mean[index : index + 1])[0]
    truth = int(judged.targets[index])
    said = int(probabilities.argmax())
    listed = range(len(probabilities))
    if len(probabilities) > MOST_BARS:
        listed = sorted(probabilities.argsort(descending=True, stable=True)[: MOST_BARS // 2].tolist())
    bars = [(names.of_class(place), probabilities[place].item(), place == truth) for place in listed]
    entropy = judged.entropy[index].sum().item()
    return Example(
        **_input(x[index], names),
        truth=names.of_class(truth),
        said=names.of_class(said),
        right=said == truth,
        bars=bars,
        doubt=entropy,
    )


def _value_example(judged: Judged, x: Tensor, names: Names, index: int) -> Example:
    assert judged.lower is not None and judged.upper is not None
    mean, std = names.target_scale
    columns = (judged.mean, judged.lower, judged.upper, judged.targets)
    predicted, lower, upper, observed = ((values[index].flatten()[0].item() * std + mean) for values in columns)
    return Example(
        **_input(x[index], names),
        truth=number(observed),
        said=f"{number(predicted)} (95\N{NO-BREAK SPACE}%: {number(lower)} to {number(upper)})",
        right=lower <= observed <= upper,
        bars=[],
        doubt=judged.variance[index].flatten()[0].sqrt().item() * std,
    )


def _input(x: Tensor, names: Names) -> dict:
    """The picture, or the cells."""
    shape = names.image_shape if x.ndim == 1 else tuple(x.shape) if x.ndim == 3 else None
    if shape is not None:
        return {"picture": input_picture(x.reshape(shape)), "cells": []}
    if names.describe is not None:
        cells = names.describe(x)
    else:
        values = x.flatten().tolist()
        cells = [
            (names.of_feature(place) if x.ndim == 1 else f"x{place}", number(value))
            for place, value in enumerate(values)
        ]
    if len(cells) > MOST_CELLS:
        cells = [*cells[: MOST_CELLS - 1], ("…", f"{len(cells) - MOST_CELLS + 1} more")]
    return {"picture": None, "cells": cells}
