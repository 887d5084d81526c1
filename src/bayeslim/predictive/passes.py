"""Passes of a size that the device takes: where it refuses one, smaller ones follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

__all__ = ["TOO_LARGE_AT_ALL", "first_that_fits", "halves", "is_too_large", "random_state"]

Size = TypeVar("Size")
Result = TypeVar("Result")

REFUSALS = (
    "out of memory",  # CUDA, HIP, MPS
    "not enough memory",  # DefaultCPUAllocator on Windows
    "can't allocate memory",  # and elsewhere
    "ALLOC_FAILED",  # of cuDNN and cuBLAS
    "CUDNN_STATUS_NOT_SUPPORTED",
    "CUDNN_STATUS_BAD_PARAM",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_NOT_SUPPORTED",
    "Unable to find a valid cuDNN algorithm",
    "unable to find an engine",  # of cuDNN
    "canUse32BitIndexMath",
    "INT_MAX",
    "invalid configuration argument",  # more blocks than a grid of CUDA holds
    "could not create a primitive",  # oneDNN
)
"""One of these is in every message by which a device or its libraries refuse a pass that may only be too large."""

TOO_LARGE_AT_ALL = (
    "one example through one network is already more than the device takes: choose a smaller network or smaller "
    "inputs, free memory, move the network to another device, or compute in 16 bits by torch.autocast"
)
"""What to do about it."""


def is_too_large(error: BaseException) -> bool:
    """Whether a device refused for want of memory, or has no kernel for a computation of this size.

    Example:
        >>> is_too_large(RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")), is_too_large(RuntimeError("no"))
        (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in REFUSALS)


def halves(size: int, least: int = 1) -> list[int]:
    """A size, its half, and so on down to the least.

    Example:
        >>> halves(20)
        [20, 10, 5, 2, 1]
    """
    found = [max(size, least)]
    while found[-1] > least:
        found.append(max(least, found[-1] // 2))
    return found


def first_that_fits(
    attempt: Callable[[Size], Result], sizes: Sequence[Size], device: torch.device
) -> tuple[Result, Size]:
    """Call `attempt` with one size after the other, until the device does not refuse.

    Every attempt starts from the same random numbers: the result is that of an attempt which began with the size that
    is returned. The last size is not followed by another, whatever it raises.

    Args:
        attempt: takes a size; it must not leave anything behind when it fails.
        sizes: from the one that is wanted to the least.
        device: where it computes, and may draw.

    Example:
        >>> first_that_fits(lambda rows: torch.cat([model(part) for part in x.split(rows)]), halves(len(x)), x.device)
    """
    for size in sizes[:-1]:
        restore = random_state(device)
        try:
            return attempt(size), size
        except (RuntimeError, MemoryError) as error:
            if not is_too_large(error):
                raise
        restore()  # only here, where nothing holds what the attempt has computed
    return attempt(sizes[-1]), sizes[-1]


def random_state(device: torch.device) -> Callable[[], None]:
    """A function that brings torch's random numbers of now back, those of the CPU and those of a GPU."""
    state = torch.get_rng_state()
    if device.type != "cuda":
        return lambda: torch.set_rng_state(state)
    own = torch.cuda.get_rng_state(device)

    def restore() -> None:
        torch.set_rng_state(state)
        torch.cuda.set_rng_state(own, device)

    return restore
