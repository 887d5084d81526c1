"""How the process keeps the memory that tensors have freed."""

from __future__ import annotations

import functools

import numpy as np

__all__ = ["keep_freed_memory"]

BLOCK = 2**25 - 2**16
"""Bytes, a little less than the largest block from which glibc learns."""


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 64 MiB that tensors on the CPU have freed, for those that come next.

    Every step frees what the next one needs again. By default glibc gives such memory back to the system, which must
    clear each page once more: a tenth of the time of a prediction. A block that is freed teaches glibc to keep blocks
    of its size. Nothing is touched, so that this costs no memory; other C libraries take no notice.
    """
    np.empty(BLOCK, dtype=np.uint8)
