"""Where the non-zeros of a tensor are, in as few bytes as a bitmap or packed gaps allow.

Positions are those of the flattened tensor, in ascending order.

- bitmap: one bit per element, most significant bit first.
- gaps: the number of zeros before each non-zero, as symbols of `width` bits, packed most significant bit first. The
  largest symbol `2^width - 1` is the escape: that many zeros, and the count goes on in the next symbol.

Rows need no counts of their own: a gap may run over the end of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["WIDTHS", "Bytes", "Positions", "cheapest", "decode", "encode", "index_size"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Positions = np.ndarray[Any, np.dtype[np.int64]]

WIDTHS = range(2, 17)
"""Bits per gap symbol that are tried; 8 suits a sparsity of about 98 %."""


def cheapest(positions: Positions, size: int) -> list[Any]:
    """The smallest index coding: `["bitmap"]` or `["gaps", width, symbols]`.

    Args:
        positions: ascending, distinct, in [0, size).
        size: elements of the tensor.

    Example:
        >>> cheapest(np.array([3]), 1000)
        ['gaps', 2, 2]
    """
    best: list[Any] = ["bitmap"]
    gaps = np.diff(positions, prepend=-1) - 1
    for width in WIDTHS:
        symbols = len(gaps) + int((gaps // (2**width - 1)).sum())
        candidate = ["gaps", width, symbols]
        if index_size(candidate, size) < index_size(best, size):
            best = candidate
    return best


def index_size(coding: list[Any], size: int) -> int:
    """Bytes that an index coding takes for a tensor of `size` elements."""
    bits = size if coding[0] == "bitmap" else coding[1] * coding[2]
    return -(-bits // 8)


def encode(positions: Positions, size: int, coding: list[Any]) -> Bytes:
    """The bytes of `positions` in a coding of `cheapest`."""
    if coding[0] == "bitmap":
        bitmap = np.zeros(size, np.uint8)
        bitmap[positions] = 1
        return np.packbits(bitmap)
    _, width, count = coding
    escape = 2**width - 1
    escapes, rests = np.divmod(np.diff(positions, prepend=-1) - 1, escape)
    symbols = np.full(count, escape, np.int64)
    symbols[np.cumsum(escapes + 1) - 1] = rests
    bits = np.empty((count, width), np.uint8)
    for bit in range(width):
        bits[:, bit] = (symbols >> (width - 1 - bit)) & 1
    return np.packbits(bits.reshape(-1))


def decode(content: Bytes, size: int, coding: list[Any]) -> Positions:
    """The positions that `encode` wrote; memory stays within a small multiple of `content`.

    Raises:
        ValueError: if the bytes do not describe positions in [0, size).
    """
    if coding[0] == "bitmap":
        return np.flatnonzero(np.unpackbits(content, count=size))
    _, width, count = coding
    escape = 2**width - 1
    bits = np.unpackbits(content, count=width * count).reshape(count, width)
    symbols = np.zeros(count, np.int64)
    for bit in range(width):
        symbols = (symbols << 1) | bits[:, bit]
    literal = symbols != escape
    if count and not literal[-1]:
        raise ValueError("a gap does not end: the index is damaged")
    positions = (np.cumsum(symbols + literal) - 1)[literal]
    if len(positions) and positions[-1] >= size:
        raise ValueError(f"an index points to element {positions[-1]} of {size}: the index is damaged")
    return positions
