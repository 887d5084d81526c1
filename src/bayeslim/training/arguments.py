"""Arguments of training that are of the wrong kind are refused at once, with what to pass instead."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from bayeslim.predictive.snapshots import Snapshots
from bayeslim.schedules import Progress

__all__ = ["EpochHook", "OptimizerFactory", "check_counts", "check_kinds", "plain_integer"]

T = TypeVar("T")
OptimizerFactory = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
EpochHook = Callable[[nn.Module, torch.optim.Optimizer, Progress], None]


def check_kinds(model: object, optimizer: object, after_epoch: object) -> None:
    """Raise TypeError unless the first is a network and the others are functions or None.

    Args:
        model: to train.
        optimizer: makes the optimiser, see `fit`.
        after_epoch: the hook.

    Example:
        >>> check_kinds(nn.Linear(2, 1), torch.optim.SGD, None)
    """
    if not isinstance(model, nn.Module):
        advice = "train the network that they are of, snapshots.model" if isinstance(model, Snapshots) else "pass one"
        raise TypeError(f"`model` must be a network (nn.Module), got {type(model).__name__}: {advice}")
    if optimizer is not None and not callable(optimizer):
        kind = type(optimizer).__name__
        raise TypeError(
            f"`optimizer` must be a function that makes one for the parameter groups, got {kind}: pass e.g. "
            "functools.partial(torch.optim.SGD, lr=0.1)"
        )
    if after_epoch is not None and not callable(after_epoch):
        raise TypeError(
            f"`after_epoch` must be one function of (model, optimizer, progress), got {type(after_epoch).__name__}: "
            "call several hooks in a function of your own"
        )


def check_counts(**counts: int) -> list[int]:
    """The counts as plain integers; a ValueError names the argument that is no positive one.

    Example:
        >>> check_counts(epochs=numpy.int64(3), samples=1)
        [3, 1]
    """
    plain = {name: plain_integer(value) for name, value in counts.items()}
    for name, value in plain.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"`{name}` must be a positive integer, got {value!r}")
    return list(plain.values())


def plain_integer(value: T) -> T | int:
    """Any integer, numpy's for one, as Python's own, which JSON takes; everything else as it is.

    Example:
        >>> plain_integer(numpy.int64(3)), plain_integer(0.5), plain_integer(True)
        (3, 0.5, True)
    """
    try:
        return value if isinstance(value, bool) else operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return value
