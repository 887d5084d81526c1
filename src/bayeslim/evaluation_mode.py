"""Evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluation_mode"]


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the block; every module's own mode comes back, also after an exception.

    Example:
        >>> with evaluation_mode(model):
        ...     y = model(x)
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
