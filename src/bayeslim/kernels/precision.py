"""Types that variances need: float16 has no numbers small enough."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["full", "is_narrow", "product_type", "typed_as", "wide", "without_float16"]


def wide(tensor: Tensor) -> Tensor:
    """Return float16 as float32 (its variances underflow below a std of 2e-4), else `tensor`."""
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def full(tensor: Tensor) -> Tensor:
    """Return numbers of 16 bits as float32, which sums over many weights and steps of scales need, else `tensor`."""
    return tensor.float() if is_narrow(tensor) else tensor


def product_type(x: Tensor, weight: Any) -> torch.dtype:
    """The type in which variances of weights meet inputs: theirs, or that of `weight` where they are indices.

    It is float32 for float16, in which small variances underflow.
    """
    dtype = (x if x.is_floating_point() else weight).dtype
    return torch.float32 if dtype == torch.float16 else dtype


def is_narrow(tensor: Tensor) -> bool:
    """Whether it holds floating-point numbers of 16 bits or less."""
    return tensor.is_floating_point() and tensor.dtype.itemsize < 4


def typed_as(weight: Tensor | None, tensor: Tensor) -> Tensor:
    """Return what `wide` made float32 as the float16 that layers with float16 weights take, else `tensor`."""
    narrow = weight is not None and weight.dtype == torch.float16 and tensor.dtype == torch.float32
    return tensor.half() if narrow else tensor


def without_float16(kind: str) -> AbstractContextManager[object]:
    """Switch float16 autocast off, where variances underflow; bfloat16 keeps their range."""
    half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    return torch.autocast(kind, enabled=False) if half else nullcontext()
