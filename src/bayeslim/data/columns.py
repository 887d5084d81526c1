"""From table columns to numbers that a network takes, with the statistics of the training rows."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.data.cells import (
    LARGEST,
    BadRow,
    as_numbers,
    as_text,
    decimal_comma,
    deviation,
    example_of_text,
    is_number,
    is_numeric,
    missing_cells,
    standardised,
    stray_text,
)
from bayeslim.data.tables import Column, Table

__all__ = ["CategoryColumn", "NumberColumn", "TableInputs"]

MOST_CATEGORIES = 100
"""Values that a text column may have."""
FEWEST_UNKNOWN = 10
"""From so many cells on, all of them unknown, a text column is doubted: fewer may well be new."""


@dataclass(frozen=True)
class NumberColumn:
    """`(value - mean) / std`, with `fill` for a missing value where imputation was asked for."""

    name: str
    mean: float
    std: float
    fill: float | None

    @property
    def width(self) -> int:
        """Inputs that it gives."""
        return 1

    def encode(self, column: Column) -> NDArray[np.float64]:
        """Standardised values, (rows, 1).

        Raises:
            BadRow: for a cell that is no number, is missing without `fill`, or lies too far from the mean for float32.
        """
        values = as_numbers(self.name, column)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, _filled(self.name, self.fill, missing), values)
        return standardised(self.name, column, values, self.mean, self.std)[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """One input per known value, 1 where the cell holds it; an unknown value gives zeros.

    A single row may hold a new value. Where at least 10 cells hold a value and all are unknown, they are more likely
    spelt differently (0 and 1 for False and True): a UserWarning names the column.
    """

    name: str
    values: tuple[str, ...]
    fill: str | None

    @property
    def width(self) -> int:
        """Inputs that it gives."""
        return len(self.values)

    def encode(self, column: Column) -> NDArray[np.float64]:
        """Indicators, (rows, values)."""
        cells = as_text(column)
        missing = missing_cells(column)
        fill = _filled(self.name, self.fill, missing) if missing.any() else None
        place = {value: index for index, value in enumerate(self.values)}
        found = np.array([place.get(str(fill) if m else c, -1) for c, m in zip(cells, missing, strict=True)], np.int64)
        present = [cell for cell, gone in zip(cells, missing, strict=True) if not gone]
        if len(present) >= FEWEST_UNKNOWN and place.keys().isdisjoint(present):
            known = _listed([repr(value[:40]) for value in self.values])
            warnings.warn(  # with the least, not the first: pieces of a file then say the same, which is shown once
                f"column {self.name!r} holds only values that training did not, such as {min(present)[:40]!r}: it has "
                f"no effect on the predictions. Write its values as in training: {known}",
                stacklevel=2,
            )
        return (found[:, None] == np.arange(len(self.values))).astype(np.float64)


@dataclass(frozen=True)
class TableInputs:
    """The inputs of a network out of a table, matched by column name.

    Attributes:
        columns: in the order of the network's inputs.
        dropped: columns that were constant in the training rows and are not used.
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    dropped: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared example."""
        return (sum(column.width for column in self.columns),)

    @staticmethod
    def fitted(table: Table, impute: bool) -> TableInputs:
        """Learn statistics and categories from training rows.

        Args:
            table: the training rows, without the target.
            impute: whether missing values will be filled by the mean or the most frequent value.

        Raises:
            BadRow: for text in a column of numbers (see `stray_text`), or a number too large for float32.
            ValueError: for missing values without `impute`, numbers with a decimal comma, a text column with too many
                values, or if no column is left.

        Example:
            >>> TableInputs.fitted(Table({"size": np.array([1.0, 3.0])}), impute=False).columns[0].mean
            2.0
        """
        if not impute:
            _refuse_missing(table)
        fitted = {name: _fitted(name, column, impute) for name, column in table.columns.items()}
        used = tuple(column for column in fitted.values() if column is not None)
        if not used:
            raise ValueError("no column is left to learn from: all are constant; add columns that vary")
        return TableInputs(used, tuple(name for name, column in fitted.items() if column is None))

    def encode_table(self, table: Table) -> Tensor:
        """Prepare rows with the stored statistics: float32 (rows, inputs).

        Raises:
            ValueError: if columns are missing from the table, or values where none are filled in.
        """
        known = {column.name for column in self.columns}
        absent = [repr(column.name) for column in self.columns if column.name not in table.columns]
        if absent:
            odd = [repr(name) for name in table.columns if name not in known | set(self.dropped)]
            more = f"; not expected: {_listed(odd)}" if odd else ""
            raise ValueError(
                f"the table does not have the columns of the training data; missing: {_listed(absent)}{more}. "
                "Rename the columns in its first line"
            )
        parts = [column.encode(table.columns[column.name]) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs."""
        return {"kind": "table"} | asdict(self)

    @staticmethod
    def from_json(facts: dict[str, Any]) -> TableInputs:
        """Undo `to_json`."""
        return TableInputs(tuple(map(_stored, facts["columns"])), tuple(map(str, facts["dropped"])))


def _stored(facts: dict[str, Any]) -> NumberColumn | CategoryColumn:
    """A column out of JSON, which may hold anything."""
    name, fill = facts["name"], facts["fill"]
    if "values" in facts:
        values = facts["values"]
        texts = isinstance(values, list) and all(isinstance(text, str) for text in (name, *values))
        if texts and isinstance(fill, str | None):
            return CategoryColumn(name, tuple(values), fill)
    else:
        mean, std = float(facts["mean"]), float(facts["std"])
        if isinstance(name, str) and isinstance(fill, float | int | None) and abs(mean) <= LARGEST and std > 0:
            return NumberColumn(name, mean, std, fill)
    raise ValueError(f"column {str(name)[:40]!r} has values of the wrong kind")


def _fitted(name: str, column: Column, impute: bool) -> NumberColumn | CategoryColumn | None:
    """What was learnt from one column; None if it is constant."""
    if is_numeric(column):
        values = as_numbers(name, column)
        present = values[~np.isnan(values)]
        if not len(present) or (present == present[0]).all():
            return None
        mean, std = float(present.mean()), deviation(present)
        return NumberColumn(name, mean, std, mean if impute else None)
    if cell := decimal_comma(column):
        raise ValueError(
            f"column {name!r} holds cells such as {cell[:40]!r}, which look like numbers with a decimal comma: write "
            "them with a point; if they are codes, put a letter before them"
        )
    cells, missing = as_text(column), missing_cells(column)
    if (row := stray_text(column)) is not None:
        problem = (
            f"{cells[row][:40]!r} is not a number, most other cells of the column are: correct it, or empty it and "
            "pass --impute; if the numbers are codes, put a letter before them"
        )
        raise BadRow(f"column {name!r}, ", row, problem)
    counts = Counter(cell for cell, gone in zip(cells, missing, strict=True) if not gone)
    if len(counts) > MOST_CATEGORIES:
        example = example_of_text(list(counts))
        more = "; if they are quantities, write them without zeros before them" if is_number(example) else ""
        raise ValueError(
            f"text column {name!r} has {len(counts)} different values, more than {MOST_CATEGORIES} (such as "
            f"{example[:40]!r}): remove the column, or group its values{more}"
        )
    if len(counts) == 1:
        return None
    return CategoryColumn(name, tuple(sorted(counts)), counts.most_common(1)[0][0] if impute else None)


def _refuse_missing(table: Table) -> None:
    counts = {name: int(missing_cells(column).sum()) for name, column in table.columns.items()}
    gaps = [f"{name!r} ({count} of {len(table)} rows)" for name, count in counts.items() if count]
    if gaps:
        raise ValueError(
            f"values are missing in {_listed(gaps)}: fill them in, remove those rows, or pass --impute to "
            "fill in the mean (numbers) or the most frequent value (text)"
        )


def _filled(name: str, fill: float | str | None, missing: NDArray[np.bool_]) -> float | str:
    if fill is None:
        start = f"column {name!r} has no value in {int(missing.sum())} of {len(missing)} rows, first in "
        raise BadRow(start, int(missing.nonzero()[0][0]), "fill it in, or train with --impute")
    return fill


def _listed(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
