"""Functions that move elements about: mean and variance move alike, and nothing is approximated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.arithmetic import mean_of, mode_of, where

__all__ = ["cat", "described", "hstack", "index_fill", "like", "masked_fill", "moved", "pad", "stack", "vstack"]


def moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule of a function that rearranges, selects or copies elements.

    Also of one whose results are sums of elements, each taken once (`cumsum`, `fold`): variances add up as means do.
    Copies (`expand`, `repeat`, overlapping windows of `unfold`) count as independent from then on, and so do sums that
    share elements: where they are added up later the variance is too small.

    Args:
        function: takes one tensor first; returns a tensor or a sequence of them.
    """

    def rule(x: Gaussian, *args: Any, **kwargs: Any) -> Any:
        mean, variance = function(x.loc, *args, **kwargs), function(x.variance, *args, **kwargs)
        if isinstance(mean, Tensor):
            return Gaussian.of(mean, variance, x.mode)
        return tuple(Gaussian.of(m, v, x.mode) for m, v in zip(mean, variance, strict=True))

    return rule


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join along an axis; plain tensors among Gaussians have variance 0, plain tensors alone stay so.

    Under `torch.compile` call this instead of `torch.cat`, which does not see a Gaussian in a list there.
    """
    return _joined(torch.cat, tensors, dim)


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Join along a new axis; see `cat`."""
    return _joined(torch.stack, tensors, dim)


def hstack(tensors: Sequence[Any]) -> Any:
    """Join along the second axis, vectors along their only one; see `cat`."""
    return _joined(lambda parts, _: torch.hstack(parts), tensors, 0)


def vstack(tensors: Sequence[Any]) -> Any:
    """Join rows; see `cat`."""
    return _joined(lambda parts, _: torch.vstack(parts), tensors, 0)


def masked_fill(input: Any, mask: Tensor, value: Any) -> Gaussian:
    """A certain value where the mask holds, `-inf` before a softmax among them: variance 0 there. Exact.

    Args:
        input: a Gaussian, or a tensor with an uncertain `value`.
        mask: boolean, broadcastable to the input.
        value: a number, a tensor of no axes, or a Gaussian.
    """
    if isinstance(value, Gaussian):
        return where(mask, value, input)
    return Gaussian.of(input.loc.masked_fill(mask, value), input.variance.masked_fill(mask, 0), input.mode)


def index_fill(input: Gaussian, dim: int, index: Tensor, value: Any) -> Gaussian:
    """A certain value at some places of an axis: variance 0 there. Exact."""
    if isinstance(value, Gaussian):
        raise TypeError("no moment rule for `index_fill` with an uncertain value: use torch.where")
    mean, variance = (part.index_fill(dim, index, fill) for part, fill in ((input.loc, value), (input.variance, 0)))
    return Gaussian.of(mean, variance, input.mode)


def like(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """Make the rule of a function that gives its input the shape or type of another value, uncertain or not.

    Args:
        function: `f(input, other)`, which does not look at the values of `other`.
    """

    def rule(input: Any, other: Any) -> Any:
        target = mean_of(other)
        return (
            input.map(lambda part: function(part, target)) if isinstance(input, Gaussian) else function(input, target)
        )

    return rule


def described(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule of a function that asks for the shape, type or device of its input only: it gets the mean."""

    def rule(input: Gaussian, *args: Any, **kwargs: Any) -> Any:
        return function(input.loc, *args, **kwargs)

    return rule


def pad(input: Gaussian, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Gaussian:
    """Pad with certain values, or around the edges.

    Raises:
        TypeError: for borders that may put two copies of one input into the same window, where they would count as
            independent: reflected and replicated ones, and circular ones as long as the axis.
    """
    wraps = any(sum(pair) >= size for pair, size in zip(_pairs(pad), reversed(input.shape), strict=False))
    if mode not in ("constant", "circular") or (mode == "circular" and wraps):
        raise TypeError(
            f"no moment rule for `pad` with mode {mode!r}: moments of an uncertain input need padding_mode='zeros' or "
            "'circular', since reflected and replicated borders repeat inputs, whose correlation would be lost"
        )
    zeros = {} if mode == "circular" else {"value": 0.0}
    mean = F.pad(input.loc, pad, mode, value)
    return Gaussian.of(mean, F.pad(input.variance, pad, mode, **zeros), input.mode)


def _pairs(amounts: Sequence[int]) -> list[tuple[int, int]]:
    """Amounts before and after, last axis first."""
    return list(zip(amounts[::2], amounts[1::2], strict=True))


def _joined(join: Callable[..., Tensor], parts: Sequence[Any], dim: int) -> Any:
    if not any(isinstance(part, Gaussian) for part in parts):
        return join(list(parts), dim)
    means = [part.loc if isinstance(part, Gaussian) else part for part in parts]
    variances = [part.variance if isinstance(part, Gaussian) else torch.zeros_like(part) for part in parts]
    return Gaussian.of(join(means, dim), join(variances, dim), mode_of(*parts))
