"""Arguments of training that are of the wrong kind are refused at once, with what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bayeslim.checks.counts import plain_integer
from bayeslim.checks.networks import check_network
from bayeslim.checks.numbers import check_number
from bayeslim.optim.injection import Sampler
from bayeslim.schedules import Progress
from bayeslim.training.elbo import check_kl_scaling

__all__ = ["EpochHook", "OptimizerFactory", "check_kinds", "check_objective", "check_pretraining", "check_sampler"]

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


def check_objective(kl_scaling: str, clip_norm: float | None, autocast: torch.dtype | None) -> None:
    """Raise ValueError for settings of a step that make no sense, before a checkpoint holds them.

    Args:
        kl_scaling: see `bl.fit`.
        clip_norm: ditto.
        autocast: ditto.
    """
    check_kl_scaling(kl_scaling)
    if clip_norm is not None:
        check_number("clip_norm", clip_norm, "(0, inf]", "pass e.g. 1.0, or None")
    if autocast not in (None, torch.bfloat16, torch.float16):
        raise ValueError(f"`autocast` must be torch.bfloat16, torch.float16 or None, got {autocast}")


def check_pretraining(pretrain_epochs: int, epochs: int) -> int:
    """The epochs of pre-training as a plain integer; a ValueError unless they are some of all epochs."""
    number = plain_integer(pretrain_epochs)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= epochs:
        raise ValueError(
            f"`pretrain_epochs` must lie in [0, epochs={epochs}], got {pretrain_epochs!r}: pass a whole number"
        )
    return number


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
