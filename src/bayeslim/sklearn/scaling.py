"""Mean 0 and variance 1, for numbers of any size."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaling"]

EQUAL = 8
"""Inputs that differ by no more than this many units in the last place are one number, computed in several ways."""
LAST_SEEN = float(np.finfo(np.float64).eps ** 0.5)
"""Deviation of targets that are all the same, relative to them: the least whose square is seen beside theirs."""


class Scaling(NamedTuple):
    """`(x / 2^exponent - mean) / std`, column by column.

    The power of two, which is exact, brings the largest number of a column to about 1, so that neither its square nor a
    difference of two numbers overflows or vanishes.

    Example:
        >>> scaling = Scaling.learned(x, weight)
        >>> scaling.restored(scaling.scaled("X", x))
    """

    mean: NDArray[np.float64]
    """Of the numbers over `2^exponent`, (columns,)."""
    std: NDArray[np.float64]
    """Ditto, above 0."""
    exponent: NDArray[np.int32]

    @classmethod
    def none(cls, columns: int) -> Self:
        """Numbers as they are."""
        return cls(np.zeros(columns), np.ones(columns), np.zeros(columns, np.int32))

    @classmethod
    def learned(cls, values: NDArray[Any], weight: NDArray[np.float64], *, targets: bool = False) -> Self:
        """Weighted mean and standard deviation of the columns.

        A column that holds one number only has no deviation. Of inputs it is taken to be 1, or the number where that is
        larger, so that other numbers give moderate values later on; of targets `LAST_SEEN` times the number (1 for 0).

        Args:
            values: (rows, columns), finite.
            weight: (rows,), above 0.
            targets: whether these are targets, not inputs.
        """
        low, high = values.min(0).astype(np.float64), values.max(0).astype(np.float64)
        largest = np.maximum(np.abs(low), np.abs(high))
        exponent = np.frexp(largest)[1]
        unit = np.ldexp(values.astype(np.float64), -exponent)
        share = weight / weight.max()
        mean = np.average(unit, axis=0, weights=share)
        std = np.sqrt(np.average(np.square(unit - mean), axis=0, weights=share))
        if targets:
            same = low == high
            alone = LAST_SEEN * np.where(low == 0, 1.0, np.abs(unit[0]))
        else:
            with np.errstate(over="ignore"):
                same = high - low <= EQUAL * np.finfo(values.dtype).eps * largest
            exponent = np.where(same, 0, exponent)
            unit = np.where(same, values.astype(np.float64), unit)
            alone = np.maximum(1.0, largest)
        return cls(np.where(same, unit[0], mean), np.where(same, alone, std), exponent)

    def scaled(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers as the network sees them, in their own floating type.

        Args:
            name: of the argument, for messages.
            values: (rows, columns).

        Raises:
            ValueError: if a number is too far from those of `learned` for that type.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            found = (np.ldexp(values.astype(np.float64), -self.exponent) - self.mean) / self.std
            found = found.astype(values.dtype)
        bad = ~np.isfinite(found)
        if bad.any():
            row, column = (int(index) for index in np.argwhere(bad)[0])
            raise ValueError(
                f"`{name}` holds {values[row, column]:.6g} in row {row}, column {column}, which is too far from the "
                f"rows of `fit` for {values.dtype}: correct it, or leave the row out"
            )
        return found

    def restored(self, scaled: NDArray[Any]) -> NDArray[np.float64]:
        """Numbers, (..., columns), in their own units again."""
        return np.ldexp(scaled.astype(np.float64) * self.std + self.mean, self.exponent)

    def deviations(self, scaled: NDArray[Any]) -> NDArray[np.float64]:
        """Standard deviations, (..., columns), in the units of the numbers; above 0 if they were."""
        least = np.where(scaled > 0, np.nextafter(0, 1), 0.0)
        return np.maximum(np.ldexp(scaled.astype(np.float64) * self.std, self.exponent), least)
