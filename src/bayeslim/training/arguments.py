"""Arguments of training that are of the wrong kind are refused at once, with what to pass instead."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from bayeslim.optim.injection import Sampler
from bayeslim.predictive.snapshots import check_network
from bayeslim.schedules import Progress

__all__ = ["EpochHook", "OptimizerFactory", "check_counts", "check_kinds", "check_sampler", "plain_integer"]

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
    check_network(model, "train")
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


def check_sampler(optimizer: torch.optim.Optimizer, num_data: int) -> None:
    """Raise ValueError for a sampler whose noise is that of another number of training examples.

    Args:
        optimizer: any; what is no sampler passes.
        num_data: training examples.

    Example:
        >>> check_sampler(bl.optim.SGLD(model.parameters(), num_data=300, lr=0.1), 300)
    """
    counts = [group["num_data"] for group in optimizer.param_groups] if isinstance(optimizer, Sampler) else []
    if wrong := [count for count in counts if count != num_data]:
        raise ValueError(
            f"`num_data`={wrong[0]} of the optimiser {type(optimizer).__name__} contradicts the data, which has "
            f"{num_data} examples: pass it num_data={num_data}, and for a hotter or colder chain another `temperature`"
        )


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
