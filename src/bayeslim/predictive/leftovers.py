"""Activations that a vectorised pass leaves on modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from bayeslim.kernels.context import inside

__all__ = ["without_leftovers"]

DEPTH = 3
"""How deep containers inside containers are looked through."""
OF_TORCH = vars(nn.Module()).keys() - {"_buffers"}
"""Attributes of every module that no `forward` writes to."""


@contextmanager
def without_leftovers(model: nn.Module) -> Iterator[None]:
    """Let attributes of modules that are tensors of `torch.vmap` after the block be what they were before it.

    A `forward` that keeps something, such as `self.attention = weights`, keeps a tensor that nothing outside of
    `torch.vmap` can read, copy or store. Such attributes go back, or go away if they were not there; so do lists and
    dictionaries (buffers too) that hold one. Plain tensors stay.

    Args:
        model: the network.

    Example:
        >>> with without_leftovers(model):
        ...     torch.vmap(run, randomness="different")(samples)
    """
    before = {module: _attributes(module) for module in model.modules()}
    held = [(found, found.copy()) for own in before.values() for value in own.values() for found in _containers(value)]
    try:
        yield
    finally:
        for container, content in held:
            if any(map(_is_dead, _members(container))):
                container.clear()
                (container.update if isinstance(container, dict) else container.extend)(content)
        for module in model.modules():
            own = before.get(module, {})
            for name in [name for name, value in _attributes(module).items() if _is_dead(value)]:
                if name in own:
                    vars(module)[name] = own[name]
                else:
                    del vars(module)[name]


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in OF_TORCH}


def _containers(value: Any, depth: int = DEPTH) -> Iterator[Any]:
    """Lists and dictionaries that `value` is or holds."""
    if isinstance(value, list | dict):
        yield value
    for member in _members(value) if depth else ():
        yield from _containers(member, depth - 1)


def _is_dead(value: Any, depth: int = DEPTH) -> bool:
    """Whether it is a tensor of `torch.vmap`, or holds one."""
    if isinstance(value, Tensor):
        return inside.is_functorch_wrapped_tensor(value)
    return depth > 0 and any(_is_dead(member, depth - 1) for member in _members(value))


def _members(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
