"""What a network is to predict: classes by name, or a number in its own unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bayeslim.data.cells import (
    as_numbers,
    as_text,
    decimal_comma,
    deviation,
    is_number,
    is_numeric,
    missing_cells,
    standardised,
)
from bayeslim.data.tables import Column

__all__ = ["Target", "Task"]

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

        Text, or at most 20 different whole numbers, are classes; anything else is regression. Text that looks like
        numbers with a decimal comma, or that differs in most rows, is refused unless the task is said.

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
        gone = int(missing_cells(column).sum())
        if gone:
            raise ValueError(f"the target {name!r} is missing in {gone} of {len(column)} rows: leave those rows out")
        found = sorted(set(_labels(column)), key=_order)
        if odd := [label for label in found if "\0" in label]:  # numpy and zip archives cut text off there
            raise ValueError(f"the target {name!r} holds a zero character in {odd[0][:40]!r}: correct the cell")
        if task is None:
            if not is_numeric(column):
                _refuse_numbers_as_text(name, column, len(found))
            whole = is_numeric(column) and bool((as_numbers(name, column) % 1 == 0).all())
            few = len(found) <= min(MOST_INTEGER_CLASSES, max(2, len(column) // 2))
            task = "classes" if not is_numeric(column) or (whole and few) else "regression"
        if task == "classes":
            if not 2 <= len(found) <= MOST_CLASSES:
                raise ValueError(
                    f"the target {name!r} has {len(found)} different values: classes must be 2 to {MOST_CLASSES}"
                    + ("; pass --task regression if it is a quantity" if is_numeric(column) else "")
                )
            return Target(name, tuple(found))
        values = as_numbers(name, column)  # text raises here, with the row
        if (values == values[0]).all():
            raise ValueError(f"the target {name!r} is {values[0]} in every row: there is nothing to learn")
        return Target(name, None, float(values.mean()), deviation(values))

    def encode(self, column: Column) -> Tensor:
        """Class numbers (rows,), or standardised values (rows, 1).

        Raises:
            ValueError: for a class that was not in the training data, or a value that is not a number.
        """
        gone = int(missing_cells(column).sum())
        if gone:
            raise ValueError(f"the target {self.name!r} is missing in {gone} of {len(column)} rows")
        if self.classes is None:
            values = standardised(self.name, column, as_numbers(self.name, column), self.mean, self.std)
            return torch.from_numpy(values.astype(np.float32))[:, None]
        place = {label: index for index, label in enumerate(self.classes)}
        labels = _labels(column)
        unknown = sorted(set(labels) - place.keys())
        if unknown:
            raise ValueError(
                f"the target {self.name!r} holds classes that training did not: {', '.join(map(repr, unknown[:5]))}"
            )
        return torch.tensor([place[label] for label in labels])

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs."""
        classes = None if self.classes is None else list(self.classes)
        return {"name": self.name, "classes": classes, "mean": self.mean, "std": self.std}

    @staticmethod
    def from_json(facts: dict[str, Any]) -> Target:
        """Undo `to_json`."""
        classes = None if facts["classes"] is None else tuple(map(str, facts["classes"]))
        if not isinstance(facts["name"], str) or not float(facts["std"]) > 0:
            raise ValueError("the target has no such name or standard deviation")
        return Target(facts["name"], classes, float(facts["mean"]), float(facts["std"]))


def _refuse_numbers_as_text(name: str, column: Column, values: int) -> None:
    """Raise ValueError if a target of text, of so many different values, was hardly meant as classes."""
    if cell := decimal_comma(column):
        raise ValueError(
            f"the target {name!r} holds cells such as {cell[:40]!r}, which look like numbers with a decimal comma: "
            "write them with a point, or pass --task classes if they are names"
        )
    if len(column) >= FEWEST_ROWS_FOR_DOUBT and 2 * values > len(column):
        text = next(cell for cell in as_text(column) if not is_number(cell))
        raise ValueError(
            f"the target {name!r} has {values} different values in {len(column)} rows and is text, such as "
            f"{text[:40]!r}: most rows would be a class of their own. Choose another --target, correct the cells if it "
            "is a quantity, or pass --task classes if they are names"
        )


def _labels(column: Column) -> list[str]:
    """Cells as class names; 1, 1.0 and "1.0" are the same class."""
    return as_text(as_numbers("target", column) if is_numeric(column) else column)


def _order(label: str) -> tuple[float, str]:
    """Numbers by size, then text."""
    return float(label) if is_number(label) else float("inf"), label
