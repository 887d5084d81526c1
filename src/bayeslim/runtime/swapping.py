"""The one way to change modules for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["swapped"]

ABSENT = object()


@contextmanager
def swapped(places: Iterable[tuple[nn.Module, str, Any]]) -> Iterator[None]:
    """Let modules have other attributes, methods, parameters, buffers or types inside the block.

    What was there before comes back at the end, also after an exception, whatever the block put in its place. Nothing
    else of a module changes: a tensor in the place of a parameter need not be one.

    Args:
        places: (module, name, value); the name `__class__` stands for the module's type.

    Example:
        >>> with swapped([(layer, "estimator", bl.mean_only) for layer in layers]):
        ...     y = model(x)
    """
    wanted = [(module, name, _home(module, name), value) for module, name, value in places]
    before = [getattr(module, name) if home is None else home.get(name, ABSENT) for module, name, home, _ in wanted]
    try:
        _put(wanted)
        yield
    finally:
        _put([(module, name, home, old) for (module, name, home, _), old in zip(wanted, before, strict=True)])


def _home(module: nn.Module, name: str) -> dict[str, Any] | None:
    """Where a module keeps what has this name; None for what is in no dictionary."""
    if name == "__class__" or isinstance(module, torch.jit.ScriptModule):
        return None
    return next((home for home in (module._parameters, module._buffers) if name in home), vars(module))


def _put(values: list[tuple[nn.Module, str, dict[str, Any] | None, Any]]) -> None:
    for module, name, home, value in values:
        if home is None:
            setattr(module, name, value)
        elif value is ABSENT:
            home.pop(name, None)
        else:
            home[name] = value
