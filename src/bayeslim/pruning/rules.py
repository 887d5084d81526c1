"""What single operations do to channels; None where they do not keep them apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from bayeslim.pruning.channels import Channels

__all__ = ["concatenated", "elementwise", "flattened", "normalised", "pooled", "reduced"]


def elementwise(state: Channels, call: Callable[[Tensor], Tensor], noisy: bool = False) -> Channels:
    """Every element alone; a constant goes through `call`, and noise leaves only zeros constant."""
    if noisy:
        return state.holding(state.constant & (state.value == 0), state.value)
    return state.holding(state.constant, call(state.value.clone()).double().cpu())


def normalised(state: Channels, norm: _BatchNorm) -> Channels | None:
    """Batch normalisation in evaluation mode, with its running statistics."""
    if state.axis != 1 or len(state.slots) != norm.num_features:
        return None
    if norm.running_mean is None or norm.running_var is None:
        return state.holding(torch.zeros_like(state.constant), state.value)
    value = state.value - norm.running_mean.double().cpu()
    value = value / (norm.running_var.double().cpu() + norm.eps).sqrt()
    if norm.affine:
        value = value * norm.weight.detach().double().cpu() + norm.bias.detach().double().cpu()
    return state.holding(state.constant, value)


def pooled(state: Channels, shape: torch.Size, call: Callable[[Tensor], Tensor], axes: int) -> Channels | None:
    """Pooling over the last `axes` axes, right after the channels."""
    return _over_positions(state, shape, call, state.axis) if state.axis == len(shape) - 1 - axes else None


def reduced(
    state: Channels, shape: torch.Size, result: torch.Size, call: Callable[[Tensor], Tensor], given: object
) -> Channels | None:
    """A mean or maximum over the axes `given`, which may not hold the channels."""
    axes = [given] if isinstance(given, int) else given
    if not isinstance(axes, Sequence):
        return None
    gone = {axis % len(shape) for axis in axes if isinstance(axis, int)}
    if state.axis in gone or len(gone) < len(axes):
        return None
    before = 0 if len(result) == len(shape) else sum(axis < state.axis for axis in gone)
    return _over_positions(state, shape, call, state.axis - before)


def _over_positions(state: Channels, shape: torch.Size, call: Callable[[Tensor], Tensor], axis: int) -> Channels:
    """Try on constant channels whether they stay constant: padding may have come in."""
    sizes = [1 if place == 0 and state.axis else size for place, size in enumerate(shape)]
    spread = [size if place == state.axis else 1 for place, size in enumerate(shape)]
    result = call(state.known().view(spread).expand(sizes).clone()).movedim(axis, 0).flatten(1)
    high, low = result.amax(1), result.amin(1)
    same = high - low <= 1e-12 * torch.maximum(high.abs(), low.abs())
    return state.at(axis).holding(state.constant & same, result[:, 0])


def flattened(state: Channels, shape: torch.Size, start: int, end: int) -> Channels | None:
    """Axes `start` to `end` become one: a channel at `start` becomes a block of features."""
    start, end = start % len(shape), end % len(shape)
    if state.axis < start:
        return state
    if state.axis > end:
        return state.at(state.axis - (end - start))
    if state.axis > start:
        return None
    block = math.prod(shape[start + 1 : end + 1])
    return Channels(start, *(part.repeat_interleave(block) for part in (state.slots, state.constant, state.value)))


def concatenated(states: Sequence[Channels | None], axis: int) -> Channels | None:
    """Tensors side by side along their channels."""
    known = [state for state in states if state is not None and state.axis == axis]
    if not known or len(known) < len(states):
        return None
    fields: Any = zip(*((state.slots, state.constant, state.value) for state in known), strict=True)
    return Channels(axis, *(torch.cat(field) for field in fields))
