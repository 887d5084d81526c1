"""Evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from bayeslim.turns import TURN

__all__ = ["evaluation_mode"]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the block; every module's own mode comes back, also after an exception.

    Threads take turns: one waits until no other is in such a block, of whatever network, or in a training step. So
    estimators and torch's random state can be switched inside it too.

    Example:
        >>> with evaluation_mode(model):
        ...     y = model(x)
    """
    with TURN:
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
