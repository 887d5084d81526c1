"""How raw data became tensors, as JSON, so that new data take the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayeslim.data.columns import TableInputs
from bayeslim.data.image_inputs import IMAGE_SUFFIXES, ImageInputs, as_images, image_files, read_image_files
from bayeslim.data.tables import read_arrays, table_chunks
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs

__all__ = ["Inputs", "Preprocessing"]

Inputs = TableInputs | ImageInputs | TextInputs
KINDS = {"table": TableInputs, "images": ImageInputs, "text": TextInputs}
AT_ONCE = 256
"""Image files that are read together."""


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

    def prepared(self, path: Path, rows: int = 65536) -> Iterator[Tensor]:
        """New inputs from a file, piece by piece, prepared for the network.

        Args:
            path: a table (for images also .npy, .npz, one image file or a folder of them).
            rows: per piece, at most.

        Raises:
            FileNotFoundError: if there is nothing at `path`.
            ValueError: if it does not fit the training data.

        Example:
            >>> for x in run.preprocessing.prepared(Path("new.csv")):  # doctest: +SKIP
            ...     bl.predict(model, x)
        """
        if isinstance(self.inputs, ImageInputs):
            yield from _prepared_images(self.inputs, path, rows)
            return
        for table in table_chunks(path, rows):
            if len(table):
                encode = self.inputs.encode_table if isinstance(self.inputs, TextInputs) else self.inputs.encode
                x = encode(table)
                yield from x.split(rows)

    def labelled(self, path: Path) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a labelled table (or .npz archive with x and y), prepared for the network."""
        if isinstance(self.inputs, ImageInputs) and path.suffix == ".npz":
            _, y = read_arrays(path)
            if y is None:
                raise ValueError(f"{path} has no array y to judge the predictions by")
            numbers = [str(value) for value in y] if y.dtype.kind in "US" else np.asarray(y, np.float64)
            return torch.cat(list(self.prepared(path))), self.target.encode(numbers)
        xs: list[Tensor] = []
        ys: list[Tensor] = []
        for table in table_chunks(path):
            if self.target.name not in table.columns:
                raise ValueError(
                    f"{path} has no column {self.target.name!r} to judge the predictions by; it has "
                    f"{', '.join(list(table.columns)[:8])}"
                )
            if len(table):
                encode = self.inputs.encode if isinstance(self.inputs, TableInputs) else self.inputs.encode_table
                xs.append(encode(table))
                ys.append(self.target.encode(table.columns[self.target.name]))
        if not xs:
            raise ValueError(f"{path} has no rows")
        return torch.cat(xs), torch.cat(ys)

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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{name} is damaged ({type(error).__name__} {error}): train again") from error


def _prepared_images(inputs: ImageInputs, path: Path, rows: int) -> Iterator[Tensor]:
    if path.is_dir() or path.suffix.lower() in IMAGE_SUFFIXES:
        files = image_files(path) if path.is_dir() else [path]
        for start in range(0, len(files), AT_ONCE):
            yield inputs.encode(read_image_files(files[start : start + AT_ONCE], inputs.shape))
    elif path.suffix in (".npy", ".npz"):
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        images, _ = as_images(read_arrays(path)[0])
        for part in images.split(rows):
            yield inputs.encode(part)
    else:
        for table in table_chunks(path, min(rows, 4096)):
            if len(table):
                yield inputs.encode_table(table)
