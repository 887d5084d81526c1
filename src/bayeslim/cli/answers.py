"""Predictions as columns, written piece by piece to a file that is whole or absent."""

from __future__ import annotations

import csv
import importlib.util
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayeslim.data.target import Target
from bayeslim.predictive.prediction import Prediction

__all__ = ["Answers", "answer_writer", "answers"]

Answers = dict[str, NDArray[Any]]
"""Columns of predictions by name."""


def answers(prediction: Prediction, target: Target) -> Answers:
    """What a prediction says, in the words and the unit of the target.

    Args:
        prediction: of prepared inputs.
        target: of the run.

    Example:
        >>> answers(bl.predict(model, x), run.preprocessing.target)["prediction"]
    """
    if target.classes is not None:
        names = np.array(target.classes)
        mean = prediction.mean.double().cpu().numpy()
        columns: Answers = {
            "prediction": names[mean.argmax(1)],
            "probability": mean.max(1),
            "entropy": prediction.entropy.cpu().numpy(),
            "mutual_information": prediction.mutual_information.cpu().numpy(),
        }
        return columns | {f"p_{name}": mean[:, index] for index, name in enumerate(target.classes)}
    lower, upper = prediction.interval(0.95, "normal" if prediction.samples is None else "quantile")
    return {
        "prediction": _flat(prediction.mean) * target.std + target.mean,
        "std": _flat(prediction.std) * target.std,
        "epistemic_std": _flat(prediction.epistemic.sqrt()) * target.std,
        "aleatoric_std": _flat(prediction.aleatoric.sqrt()) * target.std,
        "lower95": _flat(lower) * target.std + target.mean,
        "upper95": _flat(upper) * target.std + target.mean,
    }


def _flat(values: Any) -> NDArray[np.float64]:
    return values.double().reshape(-1).cpu().numpy()


@contextmanager
def answer_writer(path: Path) -> Iterator[Callable[[Answers], None]]:
    """Give a function that adds rows to `path`; the file appears at the end of the block, complete, or not at all.

    Args:
        path: .csv, .parquet or .npz. The first two are written as rows come, .npz is held in memory.

    Raises:
        ValueError: for another suffix.
        OSError: if the folder cannot be written.

    Example:
        >>> with answer_writer(Path("out.csv")) as write:
        ...     write({"prediction": np.array([1.0])})
    """
    if path.suffix not in WRITERS:
        raise ValueError(f"--out {path} has the suffix {path.suffix!r}: choose {', '.join(WRITERS)}")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ModuleNotFoundError(f"writing {path.name} needs pyarrow: pip install bayeslim[tables]")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for --out: make it first")
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(8)}{path.suffix}")
    try:
        with WRITERS[path.suffix](temporary) as write:
            yield write
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _csv_writer(path: Path) -> Iterator[Callable[[Answers], None]]:
    with path.open("x", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")

        def write(columns: Answers) -> None:
            if not file.tell():
                rows.writerow(columns)
            cells = [column if column.dtype.kind == "U" else _shown(column) for column in columns.values()]
            rows.writerows(zip(*cells, strict=True))

        yield write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[Answers], None]]:
    import pyarrow
    import pyarrow.parquet

    with ExitStack() as stack:
        opened: list[Any] = []

        def write(columns: Answers) -> None:
            table = pyarrow.table({name: pyarrow.array(column.tolist()) for name, column in columns.items()})
            if not opened:
                opened.append(stack.enter_context(pyarrow.parquet.ParquetWriter(path, table.schema)))
            opened[0].write_table(table)

        yield write


@contextmanager
def _npz_writer(path: Path) -> Iterator[Callable[[Answers], None]]:
    parts: list[Answers] = []
    yield parts.append
    if parts:
        np.savez(
            path, allow_pickle=False, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        )


def _shown(column: NDArray[Any]) -> list[str]:
    return [f"{value:.7g}" for value in column.tolist()]


WRITERS = {".csv": _csv_writer, ".parquet": _parquet_writer, ".npz": _npz_writer}
"""Suffix -> what writes the file."""
