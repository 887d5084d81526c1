"""Functions of a training step as `torch.compile` makes them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["compiled"]


def compiled(function: Callable[..., Any], device: torch.device, *, whole: bool = False) -> Callable[..., Any]:
    """The function compiled for a device, at its first call; it traces floats on modules as constants.

    Args:
        function: a plain function of a module, without a closure.
        device: where its tensors will lie.
        whole: it must become one graph, which `torch.autograd.grad` may be part of.
    """
    # On the CPU inductor's own random numbers are three times slower than eager ones.
    options: dict[str, Any] = {"fallback_random": True} if device.type == "cpu" else {}
    fast = torch.compile(_own_code(function), options=options, fullgraph=whole)

    settings: Any = torch._dynamo.config
    names = ["specialize_float", *(["trace_autograd_ops"] if whole else [])]

    def call(*args: Any, **kwargs: Any) -> Any:
        # A float on a module (a bound, a prior's width) that had another value in an earlier network would become
        # symbolic, and break the graph. (`settings.patch` would take 25 us, in every step.)
        before = {name: getattr(settings, name) for name in names}
        for name in names:
            setattr(settings, name, True)
        try:
            return fast(*args, **kwargs)
        finally:
            for name, value in before.items():
                setattr(settings, name, value)

    return call


def _own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of `function` with a code object of its own.

    torch.compile counts recompilations per code object and gives up after eight: without the copy the
    ninth network trained in one process would silently run uncompiled.
    """
    assert isinstance(function, types.FunctionType)
    copy = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    copy.__kwdefaults__, copy.__defaults__ = function.__kwdefaults__, function.__defaults__
    return copy
