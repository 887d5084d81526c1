"""Evaluation mode for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["evaluation_mode"]

_TURN = threading.RLock()
"""Held in every such block: modes, and what else is switched inside one, belong to the module and not to a thread."""


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode inside the block; every module's own mode comes back, also after an exception.

    Threads take turns: one waits until no other is in such a block, of whatever network. So estimators and torch's
    random state can be switched inside it too.

    Example:
        >>> with evaluation_mode(model):
        ...     y = model(x)
    """
    with _TURN:
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        try:
            yield
        finally:
            for module, mode in modes:
                module.training = mode
