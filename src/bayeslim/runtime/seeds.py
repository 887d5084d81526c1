"""Randomness that is reproducible and stays inside its block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import SupportsIndex

import numpy as np
import torch

from bayeslim.checks.counts import plain_integer
from bayeslim.runtime.threads import TURN

__all__ = ["check_seed", "derived_seed", "seeded"]


@contextmanager
def seeded(seed: SupportsIndex | None, *, alone: bool = True) -> Iterator[None]:
    """Run the block from `seed` and restore torch's random state after it; None changes nothing.

    There is one random state for all threads, so that they take turns in such blocks.

    Args:
        seed: a non-negative integer, or None.
        alone: False lets other threads have turns inside the block, for work that lasts and takes a `TURN` wherever it
            draws, as `fit` does. Theirs restore what they find; one that draws without a turn disturbs.

    Example:
        >>> with seeded(0):
        ...     noise = torch.randn(3)
    """
    if seed is None:
        yield
        return
    seed = check_seed(seed)
    before = torch.random.fork_rng(devices=range(torch.cuda.device_count()))
    with TURN if alone else nullcontext():
        with TURN:
            before.__enter__()
            torch.manual_seed(seed)
        try:
            yield
        finally:
            with TURN:
                before.__exit__(None, None, None)


def check_seed(seed: SupportsIndex) -> int:
    """The seed as a plain integer, which JSON and torch take; a ValueError unless it is an integer of any library.

    Example:
        >>> check_seed(numpy.int64(3))
        3
    """
    plain = plain_integer(seed)
    if isinstance(plain, bool) or not isinstance(plain, int) or not 0 <= plain < 2**63:
        raise ValueError(f"`seed` must be an integer in [0, 2^63), got {seed!r}: pass e.g. 0")
    return plain


def derived_seed(*parts: int) -> int:
    """A well-mixed seed that depends on all `parts`, e.g. (seed, epoch)."""
    return int(np.random.SeedSequence(parts).generate_state(1, np.uint64)[0] >> np.uint64(1))
