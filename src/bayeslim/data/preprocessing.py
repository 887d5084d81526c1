"""How raw data became tensors, as JSON, so that new data take the same way."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.checks.text import one_line
from bayeslim.data.cells import BadRow, numbered
from bayeslim.data.columns import TableInputs
from bayeslim.data.image_inputs import IMAGE_SUFFIXES, ImageInputs, as_images, image_files, read_image_files
from bayeslim.data.tables import Table, array_chunks, read_arrays, table_chunks
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs

__all__ = ["Inputs", "Preprocessing"]

Inputs = TableInputs | ImageInputs | TextInputs
T = TypeVar("T")
KINDS = {"table": TableInputs, "images": ImageInputs, "text": TextInputs}
AT_ONCE = 256
"""Image files that are read together, at most."""
NUMBERS = 2**22
"""Numbers that the prepared rows of a piece have together, at most."""


@dataclass(frozen=True)
class Preprocessing:
    """What happens to inputs before, and to predictions after the network.

    Attributes:
        inputs: of a table, of images or of texts.
        target: classes, or the unit of a number.
        source: what tells the training data from others, see `fingerprint`.
    """

    inputs: Inputs
    target: Target
    source: str = ""

    def pieces(self, path: Path, rows: int) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        """Cut new inputs into pieces: yield how many rows each has, and a function that prepares them.

        The same file gives the same pieces. What is not prepared costs little, so that several processes can share a
        file, and one that was stopped can go on.

        Args:
            path: a table (for images also .npy, .npz, one image file or a folder of them).
            rows: per piece, at most; fewer where rows are long.

        Raises:
            FileNotFoundError: if there is nothing at `path`.
            ValueError: if it does not fit the training data; the message counts rows from the start of the file.

        Example:
            >>> for count, prepare in run.preprocessing.pieces(Path("new.csv"), 8192):  # doctest: +SKIP
            ...     bl.predict(model, prepare())
        """
        before = 0
        for count, prepare in self._raw_pieces(path, max(1, min(rows, NUMBERS // math.prod(self.inputs.shape)))):
            if count:
                yield count, partial(_placed, prepare, before, count)
            before += count

    def _raw_pieces(self, path: Path, rows: int) -> Iterator[tuple[int, Callable[[], Tensor]]]:
        images = self.inputs if isinstance(self.inputs, ImageInputs) else None
        if images and (path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES):
            files, most = image_files(path) if path.is_dir() else [path], min(rows, AT_ONCE)
            for some in (files[start : start + most] for start in range(0, len(files), most)):
                yield len(some), partial(_images_of_files, images, some)
        elif images and path.suffix in (".npy", ".npz"):
            for x, _ in array_chunks(path, rows):
                yield len(x), partial(_images_of_array, images, x)
        else:
            for table in table_chunks(path, rows):
                yield len(table), partial(self.inputs.encode_table, table)

    def prepared(self, path: Path, rows: int = 65536) -> Iterator[Tensor]:
        """New inputs from a file, piece by piece, prepared for the network; see `pieces`.

        Example:
            >>> for x in run.preprocessing.prepared(Path("new.csv")):  # doctest: +SKIP
            ...     bl.predict(model, x)
        """
        for _, prepare in self.pieces(path, rows):
            yield prepare()

    def labelled(self, path: Path) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a labelled table (or .npz archive with x and y), prepared for the network.

        Raises:
            FileNotFoundError: if there is nothing at `path`.
            ValueError: if it does not fit the training data; the message counts rows from the start of the file.

        Example:
            >>> bl.evaluate(model, run.preprocessing.labelled(Path("labelled.csv")))  # doctest: +SKIP
        """
        if isinstance(self.inputs, ImageInputs) and path.suffix == ".npz":
            _, y = read_arrays(path)
            if y is None:
                raise ValueError(f"{path} has no array y to judge the predictions by")
            numbers = [str(value) for value in y] if y.dtype.kind in "US" else np.asarray(y, np.float64)
            return torch.cat(list(self.prepared(path))), self.target.encode(numbers)
        pairs: list[tuple[Tensor, Tensor]] = []
        before = 0
        for table in table_chunks(path):
            if self.target.name not in table.columns:
                raise ValueError(
                    f"{path} has no column {self.target.name!r} to judge the predictions by; it has "
                    f"{', '.join(one_line(name, 40) for name in list(table.columns)[:8])}"
                )
            if len(table):
                pairs.append(_placed(partial(self.labelled_table, table), before, len(table)))
            before += len(table)
        if not pairs:
            raise ValueError(f"{path} has no rows")
        xs, ys = zip(*pairs, strict=True)
        return torch.cat(xs), torch.cat(ys)

    def labelled_table(self, table: Table) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a table that holds both.

        Example:
            >>> x, y = run.preprocessing.labelled_table(read_table(Path("labelled.csv")))  # doctest: +SKIP
        """
        return self.inputs.encode_table(table), self.target.encode(table.columns[self.target.name])

    def to_json(self) -> bytes:
        """A JSON document."""
        facts = {"inputs": self.inputs.to_json(), "target": self.target.to_json(), "source": self.source}
        return (json.dumps(facts, indent=1) + "\n").encode()

    @staticmethod
    def from_json(content: bytes, name: str = "preprocessing.json") -> Preprocessing:
        """Undo `to_json`.

        Raises:
            ValueError: if the document is damaged; the message begins with `name`.
        """
        try:
            facts: dict[str, Any] = json.loads(content)
            inputs = KINDS[facts["inputs"]["kind"]].from_json(facts["inputs"])
            return Preprocessing(inputs, Target.from_json(facts["target"]), str(facts["source"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{name} is damaged ({type(error).__name__} {error}): train again") from error


def _placed(prepare: Callable[[], T], before: int, count: int) -> T:
    """Prepare a piece that has so many rows before it; errors say where in the file."""
    try:
        return numbered(prepare, lambda row: before + row)
    except ValueError as error:
        if not before or isinstance(error.__cause__, BadRow):
            raise
        raise ValueError(f"{error} (in data rows {before + 1} to {before + count})") from error


def _images_of_files(inputs: ImageInputs, files: list[Path]) -> Tensor:
    return inputs.encode(read_image_files(files, inputs.shape))


def _images_of_array(inputs: ImageInputs, x: NDArray[Any]) -> Tensor:
    return inputs.encode(as_images(x)[0])
