"""Functions that move elements about: mean and variance move alike, and nothing is approximated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.arithmetic import mode_of

__all__ = ["cat", "moved", "pad", "stack"]


def moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule of a function that rearranges, selects or copies elements.

    Copies (`expand`, `repeat`) count as independent from then on.

    Args:
        function: takes one tensor first; returns a tensor or a sequence of them.
    """

    def rule(x: Gaussian, *args: Any, **kwargs: Any) -> Any:
        mean, variance = function(x.mean, *args, **kwargs), function(x.variance, *args, **kwargs)
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
    mean = F.pad(input.mean, pad, mode, value)
    return Gaussian.of(mean, F.pad(input.variance, pad, mode, **zeros), input.mode)


def _pairs(amounts: Sequence[int]) -> list[tuple[int, int]]:
    """Amounts before and after, last axis first."""
    return list(zip(amounts[::2], amounts[1::2], strict=True))


def _joined(join: Callable[..., Tensor], parts: Sequence[Any], dim: int) -> Any:
    if not any(isinstance(part, Gaussian) for part in parts):
        return join(list(parts), dim)
    means = [part.mean if isinstance(part, Gaussian) else part for part in parts]
    variances = [part.variance if isinstance(part, Gaussian) else torch.zeros_like(part) for part in parts]
    return Gaussian.of(join(means, dim), join(variances, dim), mode_of(*parts))
