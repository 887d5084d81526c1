"""What a network is to predict: classes by name, or a number in its own unit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bayeslim.data.cells import (
    BadRow,
    as_numbers,
    as_text,
    decimal_comma,
    deviation,
    example_of_text,
    is_number,
    is_numeric,
    missing_cells,
    plain_number,
    standardised,
    stray_text,
)
from bayeslim.data.tables import Column

__all__ = ["Target", "Task", "in_own_unit"]

Task = Literal["classes", "regression"]
MOST_INTEGER_CLASSES = 20
"""A column of whole numbers with at most this many different ones is taken for classes."""
MOST_CLASSES = 1000
FEWEST_ROWS_FOR_DOUBT = 20
"""From so many rows on, text of which more than half of the rows hold a value of their own is not taken for classes."""


@dataclass(frozen=True)
class Target:
    """The target of a table.

    Attributes:
        name: of its column.
        classes: names of the classes in the order of the network's outputs; None for regression.
        mean: of the training targets, regression only.
        std: their standard deviation.
    """

    name: str
    classes: tuple[str, ...] | None = None
    mean: float = 0.0
    std: float = 1.0

    @property
    def task(self) -> Task:
        """Classes or regression."""
        return "regression" if self.classes is None else "classes"

    @property
    def outputs(self) -> int:
        """Outputs that the network needs."""
        return 1 if self.classes is None else len(self.classes)

    @staticmethod
    def fitted(name: str, column: Column, task: Task | None = None) -> Target:
        """Learn classes or statistics, and what the task is where it is not said.

        Text, or at most 20 different whole numbers, are classes; anything else is regression. Codes such as `007` are
        text, see `is_numeric`. Text that looks like numbers with a decimal comma, that differs in most rows, or that
        stands among numbers is refused unless the task is said.

        Args:
            name: of the column.
            column: the target of all rows.
            task: overrides the guess.

        Raises:
            ValueError: if cells are missing or hold a zero character, or the task is impossible or doubtful.

        Example:
            >>> Target.fitted("species", ["cat", "dog", "cat"]).classes
            ('cat', 'dog')
        """
        _refuse_missing(name, column)
        numeric = is_numeric(column)
        found = sorted(set(as_text(as_numbers(name, column) if numeric else column)), key=_order)  # 1.0 is class 1
        if odd := [label for label in found if "\0" in label]:  # numpy and zip archives cut text off there
            raise ValueError(f"the target {name!r} holds a zero character in {odd[0][:40]!r}: correct the cell")
        if task is None:
            if not numeric:
                _refuse_numbers_as_text(name, column, len(found))
            whole = numeric and bool((as_numbers(name, column) % 1 == 0).all())
            few = len(found) <= min(MOST_INTEGER_CLASSES, max(2, len(column) // 2))
            task = "classes" if not numeric or (whole and few) else "regression"
        if task == "classes":
            if not 2 <= len(found) <= MOST_CLASSES:
                raise ValueError(
                    f"the target {name!r} has {len(found)} different values: classes must be 2 to {MOST_CLASSES}"
                    + ("; pass --task regression if it is a quantity" if all(map(is_number, found)) else "")
                )
            return Target(name, tuple(found))
        values = as_numbers(name, column)  # text raises here, with the row
        if (values == values[0]).all():
            raise ValueError(f"the target {name!r} is {values[0]} in every row: there is nothing to learn")
        return Target(name, None, float(values.mean()), deviation(values))

    def encode(self, column: Column) -> Tensor:
        """Class numbers (rows,), or standardised values (rows, 1).

        A class is found by its text; numbers may be spelt otherwise than in training (`1`, `1.0`), where that leaves no
        doubt.

        Raises:
            BadRow: for a cell that is missing, or a quantity that is not a number or too large for float32.
            ValueError: for a class that was not in the training data.
        """
        _refuse_missing(self.name, column)
        if self.classes is None:
            values = standardised(self.name, column, as_numbers(self.name, column), self.mean, self.std)
            return torch.from_numpy(values.astype(np.float32))[:, None]
        plain = [plain_number(label) for label in self.classes]
        spellings = Counter(plain)
        place = {label: index for index, label in enumerate(plain) if spellings[label] == 1}
        place |= {label: index for index, label in enumerate(self.classes)}
        cells = as_text(column)
        known = {cell: place.get(cell, place.get(plain_number(cell))) for cell in set(cells)}
        if unknown := sorted(cell for cell, index in known.items() if index is None):
            raise ValueError(
                f"the target {self.name!r} holds classes that training did not: {_shown(unknown)}; it had "
                f"{_shown(self.classes)}: correct those cells, or leave the rows out"
            )
        return torch.tensor([known[cell] for cell in cells])

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs."""
        return asdict(self)

    @staticmethod
    def from_json(facts: dict[str, Any]) -> Target:
        """Undo `to_json`."""
        classes = None if facts["classes"] is None else tuple(map(str, facts["classes"]))
        if not isinstance(facts["name"], str) or not float(facts["std"]) > 0:
            raise ValueError("the target has no such name or standard deviation")
        return Target(facts["name"], classes, float(facts["mean"]), float(facts["std"]))


def in_own_unit(scores: Mapping[str, float], std: float) -> dict[str, float]:
    """Scores of a standardised regression in the target's own unit: `rmse std` and `nll + ln std`; others as they are.

    Args:
        scores: as of `bl.evaluate`.
        std: standard deviation by which the targets were divided.

    Example:
        >>> in_own_unit({"rmse": 0.5}, std=10.0)
        {'rmse': 5.0}
    """
    found = dict(scores)
    if "rmse" in found:
        found["rmse"] *= std
        found |= {"nll": found["nll"] + math.log(std)} if "nll" in found else {}
    return found


def _refuse_missing(name: str, column: Column) -> None:
    missing = missing_cells(column)
    if missing.any():
        start = f"the target {name!r} is missing in {int(missing.sum())} of {len(column)} rows, first in "
        raise BadRow(start, int(missing.argmax()), "fill it in, or leave those rows out")


def _refuse_numbers_as_text(name: str, column: Column, values: int) -> None:
    """Raise ValueError if a target of text, of so many different values, was hardly meant as classes."""
    if cell := decimal_comma(column):
        raise ValueError(
            f"the target {name!r} holds cells such as {cell[:40]!r}, which look like numbers with a decimal comma: "
            "write them with a point, or pass --task classes if they are names"
        )
    if len(column) < FEWEST_ROWS_FOR_DOUBT:
        return
    cells = as_text(column)
    if (row := stray_text(column)) is not None:
        problem = (
            f"{cells[row][:40]!r} is not a number, most other cells are: correct it, or leave the row out; pass "
            "--task classes if they are names"
        )
        raise BadRow(f"the target {name!r}, ", row, problem)
    if 2 * values > len(column):
        raise ValueError(
            f"the target {name!r} has {values} different values in {len(column)} rows and is text, such as "
            f"{example_of_text(cells)[:40]!r}: most rows would be a class of their own. Choose another --target, write "
            "plain numbers if it is a quantity, or pass --task classes if they are names"
        )


def _shown(labels: Sequence[str]) -> str:
    return ", ".join(repr(label[:40]) for label in labels[:5]) + (" ..." if len(labels) > 5 else "")


def _order(label: str) -> tuple[float, str]:
    """Numbers by size, then text."""
    return float(label) if is_number(label) else float("inf"), label
