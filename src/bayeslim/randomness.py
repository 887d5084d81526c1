"""Randomness that is reproducible and stays inside its block."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import SupportsIndex

import numpy as np
import torch

__all__ = ["check_seed", "derived_seed", "seeded"]


@contextmanager
def seeded(seed: SupportsIndex | None) -> Iterator[None]:
    """Run the block from `seed` and restore torch's random state after it; None changes nothing.

    Args:
        seed: a non-negative integer, or None.

    Example:
        >>> with seeded(0):
        ...     noise = torch.randn(3)
    """
    if seed is None:
        yield
        return
    seed = check_seed(seed)
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def check_seed(seed: SupportsIndex) -> int:
    """The seed as a plain integer, which JSON and torch take; a ValueError unless it is an integer of any library.

    Example:
        >>> check_seed(numpy.int64(3))
        3
    """
    try:
        plain = -1 if isinstance(seed, bool) else operator.index(seed)
    except TypeError:
        plain = -1
    if not 0 <= plain < 2**63:
        raise ValueError(f"`seed` must be an integer in [0, 2^63), got {seed!r}: pass e.g. 0")
    return plain


def derived_seed(*parts: int) -> int:
    """A well-mixed seed that depends on all `parts`, e.g. (seed, epoch)."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
