"""Functions of a training step as `torch.compile` makes them."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["compiled"]

OURS = re.compile(r"G\['__import_bayeslim_dot_")
PYTHONS = re.compile(r"G\['(__builtins_dict|__import_(torch_dot_|torch'|math'))")
"""Names in this library, and in torch and Python; others are of modules that somebody else wrote."""
SAME_OBJECT = ("BUILTIN_MATCH", "CLASS_MATCH", "CLOSURE_MATCH", "DUPLICATE_INPUT", "ID_MATCH", "MODULE_MATCH")
"""Conditions of the kind that a name still stands for the same function, class or module."""


def compiled(function: Callable[..., Any], device: torch.device, *, whole: bool = False) -> Callable[..., Any]:
    """The function compiled for a device, at its first call; it traces floats on modules as constants.

    Args:
        function: a plain function of a module, without a closure.
        device: where its tensors will lie.
        whole: it must become one graph, which `torch.autograd.grad` may be part of.
    """
    options: dict[str, Any] = {"guard_filter_fn": _may_change}
    if device.type == "cpu":  # where inductor's own random numbers are three times slower than eager ones
        options["fallback_random"] = True
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


def _may_change(guards: Sequence[Any]) -> list[bool]:
    """Which of the conditions that code was compiled under are checked before every call.

    Not that functions of torch and Python are still the same, nor anything in the modules of this library. These are
    two of five conditions and take more than half of the time, because nobody else has what they look at in the cache.
    """
    return [
        not (guard.is_global and (OURS.match(guard.name) or _fixed(guard.name, guard.guard_type))) for guard in guards
    ]


def _fixed(name: str, kind: str) -> bool:
    return kind in SAME_OBJECT and PYTHONS.match(name) is not None


def _own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of `function` with a code object of its own.

    torch.compile counts recompilations per code object and gives up after eight: without the copy the
    ninth network trained in one process would silently run uncompiled.
    """
    assert isinstance(function, types.FunctionType)
    copy = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    copy.__kwdefaults__, copy.__defaults__ = function.__kwdefaults__, function.__defaults__
    return copy
