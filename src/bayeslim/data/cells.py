"""What the cells of a column hold: numbers, text, or nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bayeslim.data.tables import Column

__all__ = [
    "LARGEST",
    "BadRow",
    "as_numbers",
    "as_text",
    "decimal_comma",
    "deviation",
    "example_of_text",
    "is_number",
    "is_numeric",
    "missing_cells",
    "numbered",
    "plain_number",
    "standardised",
    "stray_text",
]

T = TypeVar("T")
MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})
"""Cells, in lower case, that hold no value."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest number that an input may hold."""
SMALL = 1e-140
"""Below this a deviation is computed from scaled values: squares of 64 bits lose digits, then vanish."""
MOST_CODES = 20
"""So many different numbers, and no more, may be the codes of a text column."""
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)


class BadRow(ValueError):
    """A row of a table that cannot be used; the message counts from the first row of the table.

    Args:
        start: of the message.
        row: its number, from 0.
        rest: of the message.
    """

    def __init__(self, start: str, row: int, rest: str) -> None:
        super().__init__(f"{start}data row {row + 1}: {rest}")
        self.start, self.row, self.rest = start, row, rest

    def __reduce__(self) -> tuple[Any, ...]:
        """What makes it again in another process."""
        return BadRow, (self.start, self.row, self.rest)


def numbered(use: Callable[[], T], number: Callable[[int], int]) -> T:
    """`use()`, which takes some rows of a file; an error names the row by `number(row)`, its number in the file.

    Example:
        >>> numbered(lambda: as_numbers("size", ["1", "x"]), lambda row: 100 + row)
        Traceback (most recent call last):
        ValueError: column 'size', data row 102: 'x' is not a number (decimals take a point)
    """
    try:
        return use()
    except BadRow as error:
        raise ValueError(str(BadRow(error.start, number(error.row), error.rest))) from error


def as_numbers(name: str, column: Column) -> NDArray[np.float64]:
    """The column as finite numbers, NaN where a cell is missing.

    Args:
        name: of the column, for messages.
        column: its cells.

    Raises:
        BadRow: if a cell is text, infinite or too large for float32.
    """
    if isinstance(column, np.ndarray):
        values = column
    else:
        cells = ["nan" if cell.lower() in MISSING else cell for cell in column]
        try:
            if "_" in "".join(cells):
                raise ValueError
            values = np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            row, cell = next((i, c) for i, c in enumerate(cells) if not is_number(c))
            problem = f"{cell[:40]!r} is not a number (decimals take a point)"
            raise BadRow(f"column {name!r}, ", row, problem) from None
    bad = np.abs(values) > LARGEST
    if bad.any():
        row = int(bad.nonzero()[0][0])
        problem = f"{as_text(column)[row][:40]!r} is infinite or beyond 3.4e38: correct it, or leave the row out"
        raise BadRow(f"column {name!r}, ", row, problem)
    return values


def as_text(column: Column) -> list[str]:
    """The cells as text: a whole number without a point."""
    if not isinstance(column, np.ndarray):
        return column
    return list(map(_number_text, column.tolist()))


def plain_number(cell: str) -> str:
    """A number as `as_text` writes it, whatever its spelling in the file; other text as it is.

    Example:
        >>> plain_number("007"), plain_number("1.0"), plain_number("x")
        ('7', '1', 'x')
    """
    return _number_text(float(cell)) if is_number(cell) else cell


def missing_cells(column: Column) -> NDArray[np.bool_]:
    """Which cells hold no value."""
    if isinstance(column, np.ndarray):
        return np.isnan(column)
    return np.array([cell.lower() in MISSING for cell in column], np.bool_)


def is_numeric(column: Column) -> bool:
    """Whether every cell that holds a value is a number, and they are not codes such as `007` and `042`.

    Whole numbers with zeros before them, all to the same width, are codes.
    """
    if isinstance(column, np.ndarray):
        return True
    cells = _present(column)
    return all(map(is_number, cells)) and not _are_padded(cells)


def is_number(cell: str) -> bool:
    """Whether a cell is a number; Python reads `1_0` as 10, in a table it is a code."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def decimal_comma(column: Column) -> str | None:
    """A cell such as `0,5`, if more than half of the cells that hold a value are numbers once commas are points."""
    if isinstance(column, np.ndarray):
        return None
    cells = _present(column)
    commas = [cell for cell in cells if _DECIMAL_COMMA.fullmatch(cell)]
    return commas[0] if commas and 2 * (len(commas) + sum(map(is_number, cells))) > len(cells) else None


def example_of_text(cells: list[str]) -> str:
    """A cell of a text column that is not a number; the first one where all are codes such as `007`."""
    return next((cell for cell in cells if not is_number(cell)), cells[0])


def stray_text(column: Column) -> int | None:
    """The first row, from 0, whose cell is neither missing nor a number, if the column is one of numbers otherwise.

    It is if more than half of the cells that hold a value are numbers, unless these can be codes: at most 20 different
    ones, each of them at least twice on average, or any number of them padded with zeros as in `is_numeric`.

    Example:
        >>> stray_text(["140.4", "abc", "97.1"])
        1
        >>> stray_text(["1", "2", "other", "1", "2", "3", "3"])  # codes
    """
    if isinstance(column, np.ndarray):
        return None
    cells = _present(column)
    numbers = list(filter(is_number, cells))
    different = len(set(numbers))
    codes = different <= MOST_CODES and 2 * different <= len(numbers)
    if len(numbers) == len(cells) or 2 * len(numbers) <= len(cells) or codes or _are_padded(numbers):
        return None
    return next(row for row, cell in enumerate(column) if not is_number(cell) and cell.lower() not in MISSING)


def deviation(values: NDArray[np.float64]) -> float:
    """The standard deviation of numbers that are not all the same, above 0 however small they are."""
    std = float(values.std())
    if std < SMALL:
        centred = values - values.mean()
        largest = np.abs(centred).max()
        std = max(float(largest * (centred / largest).std()), math.ulp(0.0))
    return std


def standardised(
    name: str, column: Column, values: NDArray[np.float64], mean: float, std: float
) -> NDArray[np.float64]:
    """`(values - mean) / std`.

    Args:
        name: of the column, for messages.
        column: its cells.
        values: as numbers.
        mean: of the training rows.
        std: their standard deviation.

    Raises:
        BadRow: if a result is too large for float32.
    """
    with np.errstate(over="ignore"):
        scaled = (values - mean) / std
    bad = np.abs(scaled) > LARGEST
    if bad.any():
        row = int(bad.nonzero()[0][0])
        problem = (
            f"{as_text(column)[row][:40]!r} is too far from the training rows ({mean:.3g}, deviation {std:.3g}): "
            "correct it, or leave the row out"
        )
        raise BadRow(f"column {name!r}, ", row, problem)
    return scaled


def _present(column: list[str]) -> list[str]:
    return [cell for cell in column if cell.lower() not in MISSING]


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _are_padded(cells: list[str]) -> bool:
    """Whether cells are whole numbers with zeros before those that would be narrower than the others."""
    widths = {len(cell) for cell in cells if cell.startswith("0")}
    return widths == {min(map(len, cells), default=0)} != {1} and all(map(str.isdecimal, cells))
