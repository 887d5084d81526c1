"""Predictions as columns, and the files that hold them."""

from __future__ import annotations

import csv
import io
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from bayeslim.checks.packages import check_installed
from bayeslim.data.target import Target
from bayeslim.predictive.prediction import Prediction

__all__ = ["AnswerFormat", "Answers", "answer_format", "answers"]

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
        mean = prediction.mean.float().cpu().numpy()
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


@dataclass(frozen=True)
class AnswerFormat:
    """How answers are stored: in parts, which several processes can write, and those parts joined to one file.

    Attributes:
        part: the bytes of a part; the flag says whether it is the first one.
        join: reads parts one after the other and writes the file of all their rows to the open file.
    """

    part: Callable[[Answers, bool], bytes]
    join: Callable[[Sequence[Path], BinaryIO], None]


def answer_format(out: Path) -> AnswerFormat:
    r"""The format of a file by its suffix: .csv, .parquet or .npz.

    Args:
        out: the file of the answers.

    Raises:
        ValueError: for another suffix.
        ModuleNotFoundError: for .parquet without pyarrow.

    Example:
        >>> answer_format(Path("out.csv")).part({"prediction": np.array([1.0])}, True)
        b'prediction\n1.0\n'
    """
    if out.suffix not in FORMATS:
        raise ValueError(f"--out {out} has the suffix {out.suffix!r}: choose {', '.join(FORMATS)}")
    if out.suffix == ".parquet":
        check_installed("pyarrow", f"writing {out.name} needs pyarrow", "tables")
    return FORMATS[out.suffix]


def _csv_part(columns: Answers, first: bool) -> bytes:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    if first:
        rows.writerow(columns)
    cells = [column if column.dtype.kind == "U" else _shown(column) for column in columns.values()]
    rows.writerows(zip(*cells, strict=True))
    return text.getvalue().encode()


def _shown(column: NDArray[Any]) -> list[str]:
    """The shortest texts that give the numbers back in the type of the column."""
    return [str(value) for value in column + 0.0]  # -0.0 becomes 0.0


def _join_csv(parts: Sequence[Path], file: BinaryIO) -> None:
    for part in parts:
        with part.open("rb") as opened:
            shutil.copyfileobj(opened, file)


def _parquet_part(columns: Answers, first: bool) -> bytes:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(column.tolist()) for name, column in columns.items()})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _join_parquet(parts: Sequence[Path], file: BinaryIO) -> None:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetWriter(file, pyarrow.parquet.read_schema(parts[0])) as writer:
        for part in parts:
            writer.write_table(pyarrow.parquet.read_table(part))


def _npz_part(columns: Answers, first: bool) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def _join_npz(parts: Sequence[Path], file: BinaryIO) -> None:
    """Write one column after the other, as `np.savez` does, without holding a column in memory."""
    rows, names = 0, list[str]()
    for part in parts:
        with np.load(part, allow_pickle=False) as columns:
            names = columns.files
            rows += len(columns[names[0]])
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                for index, part in enumerate(parts):
                    with np.load(part, allow_pickle=False) as columns:
                        column = columns[f"{name}.npy"]  # "a.npy" alone would be the column "a"
                    if not index:
                        facts = np.lib.format.header_data_from_array_1_0(column) | {"shape": (rows,)}
                        np.lib.format.write_array_header_1_0(cast(BinaryIO, member), facts)
                    member.write(column.tobytes())


FORMATS = {
    ".csv": AnswerFormat(_csv_part, _join_csv),
    ".parquet": AnswerFormat(_parquet_part, _join_parquet),
    ".npz": AnswerFormat(_npz_part, _join_npz),
}
"""Suffix -> how such a file is written."""
