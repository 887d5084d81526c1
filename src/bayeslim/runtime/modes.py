"""Modes of networks and of torch: evaluation for a while, and networks made inside `torch.inference_mode()`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch
from torch import nn

from bayeslim.runtime.swapping import swapped
from bayeslim.runtime.threads import TURN

__all__ = ["check_trainable", "evaluation_mode", "making_normal_tensors"]

P = ParamSpec("P")
R = TypeVar("R")


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the block; every module's own mode comes back, also after an exception.

    Threads take turns: one waits until no other is in such a block, of whatever network, or in a training step. So
    estimators and torch's random state can be switched inside it too.

    Example:
        >>> with evaluation_mode(model):
        ...     y = model(x)
    """
    with TURN, swapped((module, "training", module.training) for module in model.modules()):
        model.eval()
        yield


def making_normal_tensors(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that makes a network do so outside inference mode, whose tensors can never be trained.

    Where it is given a network of such tensors the mode stays, since nothing else may change them.

    Args:
        function: any, with networks among its arguments or none.

    Example:
        >>> with torch.inference_mode():
        ...     model = bl.load("net.safetensors")
        >>> bl.fit(model, data, likelihood=bl.Categorical(), epochs=3)
    """

    @functools.wraps(function)
    def outside(*args: P.args, **options: P.kwargs) -> R:
        if not torch.is_inference_mode_enabled():
            return function(*args, **options)
        given = (part for part in (*args, *options.values()) if isinstance(part, nn.Module))
        if any(_made_inside(part) is not None for part in given):
            return function(*args, **options)
        with torch.inference_mode(False):
            return function(*args, **options)

    return outside


def check_trainable(*parts: nn.Module) -> None:
    """Raise ValueError for tensors that torch cannot differentiate.

    Args:
        *parts: what is to be trained, networks and likelihoods.
    """
    for part in parts:
        if (name := _made_inside(part)) is not None:
            raise ValueError(
                f"{name} of {type(part).__name__} was made inside torch.inference_mode() and cannot be trained: make "
                "it outside, or take copy.deepcopy of it there"
            )


def _made_inside(model: nn.Module) -> str | None:
    """The name of a parameter or buffer that was made in inference mode."""
    named = (*model.named_parameters(), *model.named_buffers())
    return next((name for name, tensor in named if tensor.is_inference()), None)
