"""Data ready to train on: split, prepared, and with a record of how."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.checks.text import one_line
from bayeslim.data.cells import BadRow, numbered
from bayeslim.data.columns import CategoryColumn, TableInputs
from bayeslim.data.fetching import file_sha256
from bayeslim.data.image_inputs import ImageInputs, as_images, class_folders, read_image_files
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.tables import Column, Table, read_arrays, read_table
from bayeslim.data.target import Target, Task
from bayeslim.runtime.seeds import check_seed

__all__ = ["Problem", "Splits", "from_images", "from_path", "from_table"]

HELD_OUT = 0.15
"""Part of the rows for validation, and as much again for the test, where the data come in one piece."""
FEWEST_ROWS = 10

Pair = tuple[Tensor, Tensor]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Splits:
    """Prepared inputs and targets: to train on, to choose by (early stopping, pruning), and to judge by once."""

    train: Pair
    validation: Pair
    test: Pair


@dataclass(frozen=True, eq=False)
class Problem:
    """Prepared data, the way they were prepared, and what was decided on the way, in words."""

    splits: Splits
    preprocessing: Preprocessing
    notes: tuple[str, ...]


def from_path(path: Path, target: str | None, task: Task | None, impute: bool, seed: int, rows: int | None) -> Problem:
    """Read a user's own data: a table, an array of images, or a folder with one sub-folder of images per class.

    Args:
        path: .csv, .parquet, .npy, .npz or a folder.
        target: the column to predict; y for .npz where left out.
        task: None infers it, see `Target.fitted`.
        impute: fill in missing inputs.
        seed: of the split.
        rows: use at most this many rows.

    Raises:
        FileNotFoundError, ValueError: with what to do about it.

    Example:
        >>> problem = from_path(Path("houses.csv"), "price", None, impute=True, seed=0, rows=None)  # doctest: +SKIP
        >>> problem.splits.train[0].shape  # doctest: +SKIP
    """
    source = fingerprint(path)
    if path.is_dir():
        files, labels = class_folders(path)
        images = read_image_files(files)
        return from_images(images, True, labels, "class", "classes", seed, rows, source)
    if path.suffix in (".npy", ".npz") and (arrays := read_arrays(path))[0].ndim > 2:
        x, y = arrays
        if y is None or y.shape not in ((len(x),), (len(x), 1)):
            raise ValueError(f"{path} holds images: it must be a .npz with x (N, ...) and y (N,)")
        images, unit = as_images(x)
        labels = [str(value) for value in y.reshape(-1).tolist()]
        return from_images(images, unit, labels, "y", task, seed, rows, source)
    table = read_table(path)
    if target is None and path.suffix == ".npz":
        target = "y"
    if target is None or target not in table.columns:
        problem = "say which column to predict" if target is None else f"there is no column {target!r}"
        names = ", ".join(f"'{one_line(name, 40)}'" for name in list(table.columns)[:20])
        raise ValueError(f"{problem}: pass --target with one of {names}{' ...' if len(table.columns) > 20 else ''}")
    return from_table(table, target, task, impute, seed, rows, source)


def from_table(
    table: Table,
    target: str,
    task: Task | None = None,
    impute: bool = False,
    seed: int = 0,
    rows: int | None = None,
    source: str = "",
    test_rows: NDArray[np.int64] | None = None,
) -> Problem:
    """Split a table at random and prepare it with the statistics of its training rows alone.

    Args:
        table: inputs and target.
        target: name of the target's column.
        task: see `from_path`.
        impute: fill in missing inputs.
        seed: of the split.
        rows: use at most this many rows.
        source: see `Preprocessing`.
        test_rows: a given test part; None draws one.

    Raises:
        ValueError: if the table cannot be used; the message counts rows from its first one, as they stand there.

    Example:
        >>> problem = from_table(read_table(Path("houses.csv")), "price")  # doctest: +SKIP
        >>> problem.notes[0]  # doctest: +SKIP
    """
    parts = split_rows(len(table), seed, rows, test_rows)
    column = table.columns[target]
    inputs_only = Table({name: cells for name, cells in table.columns.items() if name != target})
    if not inputs_only.columns:
        raise ValueError(f"the table has no column besides the target {target!r}: there is nothing to learn from")
    fitted_target = _fitted_target(target, column, task, parts[0])
    inputs = _with_rows(parts[0], lambda rows: TableInputs.fitted(inputs_only.take(rows), impute))
    preprocessing = Preprocessing(inputs, fitted_target, source)
    pairs = [_with_rows(part, lambda rows: preprocessing.labelled_table(table.take(rows))) for part in parts]
    notes = [_sizes(parts), _task_note(fitted_target, task is not None)]
    categories = [column.name for column in inputs.columns if isinstance(column, CategoryColumn)]
    notes.append(f"inputs: {len(inputs.columns) - len(categories)} columns of numbers, standardised")
    if categories:
        notes.append(f"text columns as one input per value: {_listed(categories)}")
    if inputs.dropped:
        notes.append(f"left out, constant: {_listed(inputs.dropped)}")
    return Problem(Splits(*pairs), preprocessing, tuple(notes))


def from_images(
    images: Tensor,
    unit: bool,
    labels: list[str],
    target: str,
    task: Task | None,
    seed: int,
    rows: int | None,
    source: str,
    test_rows: NDArray[np.int64] | None = None,
) -> Problem:
    """Split images at random; those in [0, 1] (`unit`) stay as they are, others are standardised as a whole.

    Args:
        images: (N, channels, height, width).
        unit: whether values lie in [0, 1].
        labels: the target of each, as text.
        target: what to call it.
        task: see `from_path`.
        seed: of the split.
        rows: use at most this many images.
        source: see `Preprocessing`.
        test_rows: a given test part; None draws one.
    """
    parts = split_rows(len(images), seed, rows, test_rows)
    fitted_target = _fitted_target(target, labels, task, parts[0])
    inputs = ImageInputs.fitted(images[parts[0]], unit)
    targets = [_with_rows(part, lambda rows: fitted_target.encode([labels[row] for row in rows])) for part in parts]
    pairs = [(inputs.encode(images[part]), y) for part, y in zip(parts, targets, strict=True)]
    size = " x ".join(map(str, inputs.shape))
    notes = (_sizes(parts), _task_note(fitted_target, task is not None), f"inputs: images of {size}")
    return Problem(Splits(*pairs), Preprocessing(inputs, fitted_target, source), notes)


def _fitted_target(name: str, column: Column, task: Task | None, train: NDArray[np.int64]) -> Target:
    """The classes of all rows, or the statistics of the training rows."""
    found = Target.fitted(name, column, task)
    if found.task == "classes":
        return found
    return Target.fitted(name, Table({name: column}).take(train).columns[name], "regression")


def split_rows(
    count: int, seed: int, rows: int | None = None, test_rows: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers for training, validation and test, drawn with `seed`; at most `rows` in all (test_rows besides)."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(check_seed(seed))).numpy()
    if test_rows is not None:
        order = order[~np.isin(order, test_rows)]
    if rows is not None:
        order = order[:rows]
        test_rows = None if test_rows is None else test_rows[:rows]
    if len(order) < FEWEST_ROWS:
        raise ValueError(f"the data have {len(order)} rows: training needs at least {FEWEST_ROWS}")
    held = max(1, round(HELD_OUT * len(order)))
    if test_rows is None:
        return order[2 * held :], order[held : 2 * held], order[:held]
    return order[held:], order[:held], test_rows


def fingerprint(path: Path) -> str:
    """What changes when the data change: a checksum of the file, or of a folder's names and sizes.

    Raises:
        FileNotFoundError: if there is nothing at `path`.
    """
    if path.is_file():
        return file_sha256(path)
    if not path.is_dir():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listing = "".join(f"{file.relative_to(path)}\0{file.stat().st_size}\n" for file in files)
    return hashlib.sha256(listing.encode(errors="surrogateescape")).hexdigest()


def _with_rows(part: NDArray[np.int64], use: Callable[[NDArray[np.int64]], T]) -> T:
    """`use(part)`; an error names the first bad row of the part, by its number in the table."""
    try:
        return use(part)
    except BadRow:
        ordered = np.sort(part)  # it was the first one of the shuffled rows
    return numbered(lambda: use(ordered), lambda row: int(ordered[row]))


def _sizes(parts: tuple[NDArray[np.int64], ...]) -> str:
    train, validation, test = map(len, parts)
    return f"{train} rows to train on, {validation} for validation, {test} for the test"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(one_line(name, 40) for name in names)


def _task_note(target: Target, told: bool) -> str:
    why = "" if told else " (inferred; --task overrides it)"
    if target.classes is None:
        return f"task: regression of {target.name!r}{why}"
    shown = _listed(target.classes[:8]) + (" ..." if len(target.classes) > 8 else "")
    return f"task: {len(target.classes)} classes of {target.name!r}{why}: {shown}"
