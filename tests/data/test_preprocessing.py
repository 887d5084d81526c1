"""Pieces of new inputs: bounded in memory, the same for everyone, with errors that say where in the file."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

from bayeslim.data.columns import TableInputs
from bayeslim.data.image_inputs import ImageInputs
from bayeslim.data.preprocessing import NUMBERS, Preprocessing
from bayeslim.data.tables import Table
from bayeslim.data.target import Target
from bayeslim.data.text_inputs import TextInputs

TARGET = Target("y", ("a", "b"))


def table_of(*names: str) -> Preprocessing:
    """Numbers that are left as they are: mean 0, deviation 1."""
    return Preprocessing(TableInputs.fitted(Table({name: ["-1", "1"] for name in names}), impute=False), TARGET)


def write_csv(file: Path, x: np.ndarray) -> None:
    np.savetxt(file, x, "%.9g", ",", header="x0,x1", comments="")


def write_parquet(file: Path, x: np.ndarray) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x0": x[:, 0], "x1": x[:, 1]}), file, row_group_size=7)


def write_fortran(file: Path, x: np.ndarray) -> None:
    np.save(file, np.asfortranarray(x))


@pytest.mark.parametrize(
    ("name", "write"),
    [("x.csv", write_csv), ("x.parquet", write_parquet), ("x.npy", np.save), ("f.npy", write_fortran)],
)
def test_pieces_add_up_whatever_the_format(
    tmp_path: Path, name: str, write: Callable[[Path, np.ndarray], None]
) -> None:
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    write(tmp_path / name, x)
    pieces = list(table_of("x0", "x1").pieces(tmp_path / name, 20))
    assert [count for count, _ in pieces] == [20, 20, 10]
    torch.testing.assert_close(torch.cat([prepare() for _, prepare in pieces]), torch.from_numpy(x))


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, suffix: str) -> None:
    peaks: list[int] = []
    for rows in (2_000, 20_000):
        file, x = tmp_path / f"{rows}{suffix}", np.ones((rows, 2))
        write_csv(file, x) if suffix == ".csv" else np.save(file, x)
        tracemalloc.start()
        assert sum(len(piece) for piece in table_of("x0", "x1").prepared(file, 500)) == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]  # ten times the rows


def test_long_rows_make_small_pieces(tmp_path: Path) -> None:
    side = 1024
    np.save(tmp_path / "x.npy", np.zeros((7, side, side), np.uint8))
    images = Preprocessing(ImageInputs((1, side, side)), TARGET)
    assert [count for count, _ in images.pieces(tmp_path / "x.npy", 100)] == [4, 3]
    assert 4 * side**2 == NUMBERS


def test_errors_count_from_the_start_of_the_file(tmp_path: Path) -> None:
    table = table_of("a")
    for cell, message in {
        "two": "column 'a', data row 6: 'two' is not a number",
        "1e99": "column 'a', data row 6: '1e99' is infinite",
        '""': "column 'a' has no value in 1 of 2 rows, first in data row 6: fill it in",
    }.items():
        (tmp_path / "a.csv").write_text("a\n" + "1\n" * 5 + f"{cell}\n")
        with pytest.raises(ValueError, match=message) as caught:
            list(table.prepared(tmp_path / "a.csv", 2))
        assert type(caught.value) is ValueError  # which other processes can be sent
    x = np.zeros((6, 2, 2), np.float32)
    x[4] = 2
    np.save(tmp_path / "x.npy", x)
    images = Preprocessing(ImageInputs((1, 2, 2)), TARGET)
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\].*\(in data rows 4 to 6\)"):
        list(images.prepared(tmp_path / "x.npy", 3))
    x[0] = 3
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(ValueError, match=r"pixels must lie in \[0, 1\].*uint8\)$"):
        list(images.prepared(tmp_path / "x.npy", 3))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("two,b", "column 'a', data row 65539: 'two' is not a number"),
        ("1,", "the target 'y' is missing in 1 of 3 rows, first in data row 65539: fill it in"),
        ("1,c", r"classes that training did not: 'c'.*\(in data rows 65537 to 65539\)"),
    ],
)
def test_errors_in_labelled_tables_count_from_the_start_of_the_file(tmp_path: Path, row: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("a,y\n" + "1,a\n" * 65538 + f"{row}\n")
    with pytest.raises(ValueError, match=message):
        table_of("a").labelled(tmp_path / "a.csv")


def test_labelled_tables_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,y\n" + "1,a\n" * 65536 + "-1,b\n")
    x, y = table_of("a").labelled(tmp_path / "a.csv")
    assert x.shape == (65537, 1) and x[-2:].tolist() == [[1.0], [-1.0]] and y[-2:].tolist() == [0, 1]
    (tmp_path / "a.csv").write_text("a,y\n")
    with pytest.raises(ValueError, match=r"a\.csv has no rows"):
        table_of("a").labelled(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("a,z\n1,a\n")
    with pytest.raises(ValueError, match="no column 'y' to judge the predictions by; it has a, z"):
        table_of("a").labelled(tmp_path / "a.csv")


def test_pieces_that_nobody_asks_for_are_not_prepared(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\nbad\n1\n")
    counted = [(count, prepare) for count, prepare in table_of("a").pieces(tmp_path / "a.csv", 1)]
    assert [count for count, _ in counted] == [1, 1]
    torch.testing.assert_close(counted[1][1](), torch.tensor([[1.0]]))


def test_texts_and_empty_files(tmp_path: Path) -> None:
    texts = Preprocessing(TextInputs(("be", "to"), 3), TARGET)
    (tmp_path / "t.csv").write_text("text\nto be\nnot\nto\n")
    assert torch.cat(list(texts.prepared(tmp_path / "t.csv", 2))).tolist() == [[0, 3, 2], [0, 0, 1], [0, 0, 3]]
    (tmp_path / "a.csv").write_text("a\n")
    np.save(tmp_path / "none.npy", np.zeros((0, 2, 2), np.uint8))
    assert not list(table_of("a").pieces(tmp_path / "a.csv", 2))
    assert not list(Preprocessing(ImageInputs((1, 2, 2)), TARGET).pieces(tmp_path / "none.npy", 2))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        list(table_of("a").pieces(tmp_path / "absent.npy", 2))
