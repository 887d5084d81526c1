"""Counts as Python's own integers, whichever library they come from."""

from __future__ import annotations

import operator
from typing import SupportsIndex, TypeVar

__all__ = ["check_counts", "check_num_data", "check_zero_or_more", "plain_integer"]

T = TypeVar("T")


def plain_integer(value: T) -> T | int:
    """Any integer, numpy's for one, as Python's own, which JSON takes; everything else as it is, a truth value too.

    Example:
        >>> plain_integer(numpy.int64(3)), plain_integer(0.5), plain_integer(True)
        (3, 0.5, True)
    """
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "torch.bool":  # of which torch makes an index
        return value
    try:
        return operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return value


def _checked(value: SupportsIndex, least: int, message: str) -> int:
    number = plain_integer(value)
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(message)
    return number


def check_counts(**counts: SupportsIndex) -> list[int]:
    """The counts as plain integers; a ValueError names the argument that is no positive one.

    Example:
        >>> check_counts(epochs=numpy.int64(3), samples=1)
        [3, 1]
    """
    return [
        _checked(value, 1, f"`{name}` must be a positive integer, got {value!r}: pass e.g. 1")
        for name, value in counts.items()
    ]


def check_zero_or_more(name: str, count: SupportsIndex, advice: str) -> int:
    """The count as a plain integer; a ValueError names the argument that is none, or negative, and gives the advice.

    Example:
        >>> check_zero_or_more("samples", numpy.int64(0), "0 uses the posterior mean")
        0
    """
    whole = isinstance(plain_integer(count), int) and not isinstance(count, bool)
    kind = "must not be negative" if whole else "must be an integer"
    return _checked(count, 0, f"`{name}` {kind}, got {count!r}: {advice}")


def check_num_data(num_data: SupportsIndex) -> int:
    """The size of a training set as a plain integer; a ValueError for what cannot be one.

    Example:
        >>> check_num_data(numpy.int64(60_000))
        60000
    """
    if type(num_data) is int and num_data > 0:  # in every training step
        return num_data
    wanted = "the positive number of training examples"
    return _checked(num_data, 1, f"`num_data` must be {wanted}, got {num_data!r}: pass e.g. len(dataset)")
