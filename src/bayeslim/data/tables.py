"""A user's own table: CSV, Parquet, .npy or .npz, read in chunks of rows into named columns."""

from __future__ import annotations

import codecs
import csv
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayeslim.checks.packages import check_installed
from bayeslim.data.numpy_files import reading_arrays

__all__ = [
    "TABLE_SUFFIXES",
    "Column",
    "Table",
    "array_chunks",
    "feature_names",
    "read_arrays",
    "read_table",
    "table_chunks",
]

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".npy", ".npz")
DELIMITERS = (",", ";", "\t", "|")
GZIP = b"\x1f\x8b"
"""The first bytes of a gzip file."""
MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
"""The first bytes of text in other encodings; those of UTF-32 begin with those of UTF-16, and come first."""
_QUOTED = re.compile(r'(?<![^,;\t|])"(?:[^"]+|"")*"?')
"""A cell in quotes, perhaps over the end of the line."""
BUFFER = 2**16
"""Bytes of a column of Parquet, or of the first line of a CSV file, that are read together."""

Column = list[str] | NDArray[np.float64]
"""The cells of a column: text as it stands in the file, or numbers with NaN where one is missing."""


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length by name."""

    columns: dict[str, Column]

    def __len__(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), []))

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Some of the rows, in this order.

        Args:
            rows: their numbers, from 0.
        """
        return Table(
            {
                name: column[rows] if isinstance(column, np.ndarray) else [column[row] for row in rows.tolist()]
                for name, column in self.columns.items()
            }
        )


def feature_names(count: int) -> list[str]:
    """The names of columns that have none: x0, x1, ..."""
    return [f"x{index}" for index in range(count)]


def read_table(path: Path) -> Table:
    """Read a whole table.

    Args:
        path: a file with one of `TABLE_SUFFIXES`.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it cannot be read as a table; the message says where and why.

    Example:
        >>> table = read_table(Path("houses.csv"))  # doctest: +SKIP
        >>> table.columns["rooms"]  # doctest: +SKIP
    """
    chunks = list(table_chunks(path))
    first = chunks[0].columns
    joined: dict[str, Column] = {}
    for name, column in first.items():
        parts: list[Any] = [chunk.columns[name] for chunk in chunks]
        joined[name] = np.concatenate(parts) if isinstance(column, np.ndarray) else [c for part in parts for c in part]
    return Table(joined)


def table_chunks(path: Path, rows: int = 65536) -> Iterator[Table]:
    """Yield a table piece by piece, at least one piece (perhaps without rows), so that memory stays bounded.

    Args:
        path: a file with one of `TABLE_SUFFIXES`. A .npy array of two axes has the columns x0, x1, ...; a .npz
            archive has an array x and perhaps y, which becomes the column y. Only .npz is held in memory.
        rows: rows per piece.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it cannot be read as a table, at once or where that shows.

    Example:
        >>> sum(len(chunk) for chunk in table_chunks(Path("houses.csv"), rows=1000))  # doctest: +SKIP
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with path.open("rb") as file:
        if file.read(len(GZIP)) == GZIP:
            name = shlex.quote(path.name)
            raise ValueError(f"{path} is packed by gzip: unpack it first, e.g. gunzip < {name} > unpacked.csv")
    if path.suffix == ".parquet":
        return _parquet_chunks(path, rows)
    if path.suffix in (".npy", ".npz"):
        return (_array_table(path, x, y) for x, y in array_chunks(path, rows))
    if path.suffix in TABLE_SUFFIXES:
        return _csv_chunks(path, rows)
    raise ValueError(f"{path} has the suffix {path.suffix!r}: tables are read from {', '.join(TABLE_SUFFIXES)}")


def read_arrays(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read the array of a .npy file, or x and, where it is there, y of a .npz archive; pickles are refused.

    Example:
        >>> x, y = read_arrays(Path("scans.npz"))  # doctest: +SKIP
    """
    with reading_arrays(path):
        loaded: Any = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded, None
        with loaded:
            if "x" not in loaded:
                raise ValueError(
                    f"it holds {', '.join(loaded.files) or 'nothing'}, expected an array named x (N, ...) and, to "
                    "train, one named y (N,): name them so"
                )
            found = loaded["x"], loaded.get("y")
            if not all(part is None or isinstance(part, np.ndarray) for part in found):
                raise ValueError("x or y is not an array")
            return found


def array_chunks(path: Path, rows: int) -> Iterator[tuple[NDArray[Any], NDArray[Any] | None]]:
    """Yield the rows of a .npy or .npz file piece by piece, at least one piece (perhaps without rows).

    Args:
        path: see `read_arrays`.
        rows: rows per piece.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it does not hold rows, or as many targets as rows.

    Example:
        >>> sum(len(x) for x, _ in array_chunks(Path("scans.npy"), rows=1000))  # doctest: +SKIP
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    x, y = (_mapped(path), None) if path.suffix == ".npy" else read_arrays(path)
    if not x.ndim:
        raise ValueError(f"{path} holds {x.dtype} of shape (): an array of rows is needed")
    if y is not None and y.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(f"{path} has {len(x)} rows of x and y of shape {y.shape}: one target per row is needed")
    for start in range(0, max(len(x), 1), rows):
        piece = slice(start, start + rows)
        if isinstance(x, np.memmap):  # anew: what was read counts as memory of the process while the file is mapped
            x = np.memmap(path, x.dtype, "r", x.offset, x.shape, "F" if np.isfortran(x) else "C")
        yield np.array(x[piece]), None if y is None else y[piece].reshape(-1)


def _mapped(path: Path) -> NDArray[Any]:
    with reading_arrays(path):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def _array_table(path: Path, x: NDArray[Any], y: NDArray[Any] | None) -> Table:
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {x.dtype} of shape {x.shape}: a table is numbers of shape (rows, columns)")
    columns: dict[str, Column] = {
        name: np.asarray(x[:, index], np.float64) for index, name in enumerate(feature_names(x.shape[1]))
    }
    if y is not None:
        columns["y"] = np.asarray(y, np.float64) if y.dtype.kind in "biuf" else [str(value) for value in y]
    return Table(columns)


def _csv_chunks(path: Path, rows: int) -> Iterator[Table]:
    encoding = _encoding(path)
    with path.open(newline="", encoding=encoding) as file:
        try:
            first = file.readline(BUFFER)
            if "\0" in first:
                raise ValueError(f"{path} holds zeros between its letters, {_saved_as_utf8(path, 'utf-16le')}")
            if not first.strip():
                raise ValueError(f"{path} is empty or begins with an empty line: the first line must name the columns")
            delimiter = max(DELIMITERS, key=_QUOTED.sub("", first).count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            names = [name.strip() for name in next(reader)]
            _check_names(path, names)
            pending: list[list[str]] = []
            started = False
            for row in reader:
                if not row:
                    continue
                if len(row) != len(names):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, but the header names {len(names)} columns: "
                        "repair the line, or quote cells that hold the separator"
                    )
                pending.append(row)
                if len(pending) == rows:
                    yield _transposed(names, pending)
                    pending, started = [], True
            if pending or not started:
                yield _transposed(names, pending)
        except UnicodeDecodeError as error:
            if encoding != "utf-8-sig":
                raise ValueError(
                    f"{path} begins as {encoding.upper()} text and goes on as something else ({error.reason}): it may "
                    "be cut off; save it again, as UTF-8"
                ) from error
            byte = f"0x{error.object[error.start]:02x}"
            raise ValueError(f"{path} is not UTF-8 text (byte {byte}), {_saved_as_utf8(path, 'latin1')}") from error
        except csv.Error as error:
            raise ValueError(f"{path} is not a valid CSV file ({error})") from error


def _encoding(path: Path) -> str:
    """UTF-16 or UTF-32 where the file begins with their mark, as what Excel calls Unicode text does; else UTF-8."""
    with path.open("rb") as file:
        start = file.read(4)
    for encoding, marks in MARKS.items():
        if start.startswith(marks):
            return encoding
    return "utf-8-sig"


def _saved_as_utf8(path: Path, encoding: str) -> str:
    return f"perhaps {encoding}: save it as UTF-8, e.g. iconv -f {encoding} -t utf-8 {shlex.quote(path.name)}"


def _transposed(names: list[str], rows: list[list[str]]) -> Table:
    cells = zip(*rows, strict=True) if rows else [()] * len(names)
    return Table({name: [cell.strip() for cell in column] for name, column in zip(names, cells, strict=True)})


def _parquet_chunks(path: Path, rows: int) -> Iterator[Table]:
    check_installed("pyarrow", f"reading {path.name} needs pyarrow", "tables")
    import pyarrow
    import pyarrow.parquet

    try:
        # pre_buffer would hold the whole file by its end; without buffer_size a group of rows is read at once
        with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = [str(name) for name in file.schema_arrow.names]
            _check_names(path, names)
            started = False
            for batch in file.iter_batches(rows):
                started = True
                yield Table({name: _arrow_column(batch.column(index)) for index, name in enumerate(names)})
            if not started:
                yield Table({name: [] for name in names})
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} cannot be read as Parquet ({error})") from error


def _arrow_column(array: Any) -> Column:
    import pyarrow

    kind = array.type
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind):
        return array.cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
    return ["" if value is None else str(value) for value in array.to_pylist()]


def _check_names(path: Path, names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"{path} names columns twice: {', '.join(map(repr, twice[:5]))}; give each its own name")
    if "" in names:
        raise ValueError(f"{path} has no name for column {names.index('') + 1}: name it in the first line")
