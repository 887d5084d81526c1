"""Which operations keep channels apart, by kind; everything not listed is taken to need all of them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

__all__ = [
    "BINARY",
    "CAT",
    "ELEMENTWISE",
    "ELEMENTWISE_MODULES",
    "FLATTEN",
    "POOLS",
    "POOL_MODULES",
    "REDUCTIONS",
    "RESHAPES",
    "changes_input",
    "draws_noise",
    "kind_of",
    "only_asks_for_shape",
]

ELEMENTWISE_MODULES: tuple[type[nn.Module], ...] = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus),
    *(nn.Softsign, nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink),
    *(nn.Softshrink, nn.Tanhshrink, nn.Threshold),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
)
"""Applied to every element alone, in evaluation mode."""

POOL_MODULES: dict[type[nn.Module], int] = {
    **{kind: 1 for kind in (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d)},
    **{kind: 2 for kind in (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)},
    **{kind: 3 for kind in (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d)},
}
"""Pooling over the positions of each channel, and over how many axes."""

_ELEMENTWISE = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "softplus", "softsign", "tanh"),
    *("sigmoid", "logsigmoid", "hardtanh", "hardswish", "hardsigmoid", "sin", "cos", "abs", "square", "sqrt", "exp"),
    *("neg", "clamp", "clamp_min", "clamp_max", "pow", "dropout", "dropout2d", "clone", "contiguous", "detach"),
    *("float", "double", "half", "bfloat16", "to"),
)
_POOLS = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")


def _functions(*names: str) -> set[Any]:
    """The functions of torch with these names, and their in-place forms."""
    found = (getattr(space, f"{name}{end}", None) for space in (torch, F) for name in names for end in ("", "_"))
    return {function for function in found if function is not None}


BINARY: dict[Any, str] = {
    **{function: "add" for function in (*_functions("add"), operator.add)},
    **{function: "sub" for function in (*_functions("sub"), operator.sub)},
    **{function: "mul" for function in (*_functions("mul"), operator.mul)},
    **{function: "div" for function in (*_functions("div"), operator.truediv)},
}
"""Arithmetic of two tensors, element by element."""

ELEMENTWISE: set[Any] = {*_functions(*_ELEMENTWISE), operator.neg, operator.pow}
POOLS: dict[Any, int] = {
    function: axes for axes in (1, 2, 3) for function in _functions(*(f"{name}{axes}d" for name in _POOLS))
}
REDUCTIONS: set[Any] = _functions("mean", "amax", "amin")
FLATTEN: set[Any] = {torch.flatten}
RESHAPES: set[Any] = {torch.reshape}
CAT: set[Any] = _functions("cat", "concat")

_METHODS: dict[str, str] = {
    **{name: "elementwise" for name in _ELEMENTWISE},
    **{name: "binary" for name in BINARY.values()},
    **{name: "reduction" for name in ("mean", "amax", "amin")},
    **{"flatten": "flatten", "view": "reshape", "reshape": "reshape"},
}


def kind_of(node: fx.Node) -> tuple[str, Callable[..., Any]]:
    """The kind of a function or method node, and a function with the method's meaning that changes no input."""
    if node.kwargs.get("out") is not None:
        return "unknown", _nothing
    if node.op == "call_method":
        name = str(node.target).rstrip("_")
        return _METHODS.get(name, "unknown"), getattr(Tensor, name, _nothing)
    target: Any = node.target
    tables = (
        ("elementwise", ELEMENTWISE),
        ("binary", BINARY),
        ("pool", POOLS),
        ("reduction", REDUCTIONS),
        ("flatten", FLATTEN),
        ("reshape", RESHAPES),
        ("cat", CAT),
    )
    return next((kind for kind, table in tables if target in table), "unknown"), target


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Stands for a method that torch does not have."""


def options(node: fx.Node) -> dict[str, Any]:
    """The arguments of a Python function by name; only the keywords where it has no signature."""
    target: Any = node.target
    try:
        bound = inspect.signature(target).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):
        return dict(node.kwargs)
    bound.apply_defaults()
    return bound.arguments


def changes_input(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node writes its result into its first input."""
    if module is not None:
        return bool(getattr(module, "inplace", False))
    if node.op == "call_method":
        return str(node.target).endswith("_")
    return getattr(node.target, "__name__", "").endswith("_") or bool(options(node).get("inplace"))


def draws_noise(node: fx.Node) -> bool:
    """Whether this is a dropout that also drops in evaluation mode."""
    return "dropout" in getattr(node.target, "__name__", "") and bool(options(node).get("training", True))


def only_asks_for_shape(node: fx.Node) -> bool:
    """Whether a node reads nothing of a tensor but its type or what removing channels does not change."""
    if node.op == "call_method":
        return node.target == "dim" or (node.target == "size" and node.args[1:] == (0,))
    if node.target is not getattr:
        return False
    if node.args[1] == "shape":
        return all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
    return node.args[1] in ("ndim", "dtype", "device")
