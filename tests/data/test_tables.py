"""Tables of users: what can be read, and what is refused with a message."""

import gzip
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bayeslim.data.tables import Table, read_table, table_chunks


def written(folder: Path, text: str | bytes, name: str = "table.csv") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_with_any_delimiter_quotes_and_a_byte_order_mark(tmp_path: Path, delimiter: str) -> None:
    rows = [["a", "b c"], [" 1 ", f'"x{delimiter}y"'], ["2", "z"]]
    text = "\ufeff" + "\r\n".join(delimiter.join(row) for row in rows) + "\r\n\r\n"
    assert read_table(written(tmp_path, text)).columns == {"a": ["1", "2"], "b c": [f"x{delimiter}y", "z"]}


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ('"area, net";rooms', ["area, net", "rooms"]),
        ('rooms;"a ""b, c"", d"', ["rooms", 'a "b, c", d']),
        ('rooms;"area,\nnet,"', ["rooms", "area,\nnet,"]),  # over two lines
        ('"a;b;c","d"', ["a;b;c", "d"]),
        ('5" pipe,6" pipe', ['5" pipe', '6" pipe']),  # inches
    ],
)
def test_separators_in_quoted_names_do_not_count(tmp_path: Path, header: str, names: list[str]) -> None:
    separator = ";" if "rooms" in header else ","
    table = read_table(written(tmp_path, f"{header}\n1{separator}2\n"))
    assert table.columns == dict(zip(names, (["1"], ["2"]), strict=True))


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz", "my table.parquet"])
def test_gzip_files_are_refused_with_the_way_to_unpack_them(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, gzip.compress(b"a,b\n1,2\n"), name)
    quoted = f"'{name}'" if " " in name else name
    with pytest.raises(ValueError, match=f"is packed by gzip: unpack it first, e.g. gunzip < {quoted} > unpacked.csv"):
        read_table(file)


def test_chunks_bound_the_rows_in_memory_and_add_up(tmp_path: Path) -> None:
    file = written(tmp_path, "a,b\n" + "".join(f"{i},{i * i}\n" for i in range(10)))
    chunks = list(table_chunks(file, rows=4))
    assert [len(chunk) for chunk in chunks] == [4, 4, 2]
    assert [cell for chunk in chunks for cell in chunk.columns["b"]] == [str(i * i) for i in range(10)]


def test_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "a,b\n"))
    assert list(table.columns) == ["a", "b"] and len(table) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("\na,b\n", "begins with an empty line"),
        ("a,b\n1,2\n3\n", r"line 3: 1 cells, but the header names 2 columns"),
        ("a,b\n1,2,3\n", r"line 2: 3 cells"),
        ("a,b,a\n1,2,3\n", "names columns twice: 'a'"),
        ("a,,c\n1,2,3\n", "no name for column 2"),
        (b"caf\xe9,b\n1,2\n", r"not UTF-8 text \(byte 0xe9\).*iconv"),
        ("a,b\n1," + "\xe9" * 3 + "\n", None),
        (b"a,b\n" + b"1,2\n" * 30000 + b"\xff,3\n", "not UTF-8"),
        ('a,b\n1,"2\n', "not a valid CSV"),
        ("a,b\n1," + "9" * 200_000 + "\n", "not a valid CSV.*field larger"),
    ],
)
def test_bad_csv_is_refused_with_its_place(tmp_path: Path, content: str | bytes, message: str | None) -> None:
    file = written(tmp_path, content)
    if message is None:
        assert read_table(file).columns["b"] == ["\xe9" * 3]
    else:
        with pytest.raises(ValueError, match=message):
            read_table(file)


def test_parquet_keeps_numbers_text_and_gaps(tmp_path: Path) -> None:
    file = tmp_path / "table.parquet"
    decimals = [None, Decimal("0.25"), Decimal("-7")]
    columns = {"n": [1, None, 3], "x": [0.5, 1.5, None], "d": decimals, "s": ["a", None, "b"], "t": [True, False, True]}
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    table = read_table(file)
    np.testing.assert_array_equal(table.columns["n"], [1, np.nan, 3])
    np.testing.assert_array_equal(table.columns["x"], [0.5, 1.5, np.nan])
    np.testing.assert_array_equal(table.columns["d"], [np.nan, 0.25, -7])
    assert table.columns["s"] == ["a", "", "b"] and table.columns["t"] == ["True", "False", "True"]
    assert [len(chunk) for chunk in table_chunks(file, rows=2)] == [2, 1]


@pytest.mark.parametrize("group", [1000, 10**6])
def test_parquet_is_read_in_bounded_memory(tmp_path: Path, group: int) -> None:
    file, x = tmp_path / "x.parquet", np.random.default_rng(0).normal(size=10**6)
    pyarrow.parquet.write_table(pyarrow.table({"x": x}), file, row_group_size=group)
    before = pyarrow.total_allocated_bytes()
    held = [pyarrow.total_allocated_bytes() - before for _ in table_chunks(file, rows=8192)]
    assert max(held) < x.nbytes / 3


def test_arrays_have_numbered_columns(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(3, 2)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "xy.npz", x=x, y=np.array(["a", "b", "a"]))
    np.testing.assert_array_equal(read_table(tmp_path / "x.npy").columns["x1"], [1, 3, 5])
    table = read_table(tmp_path / "xy.npz")
    assert list(table.columns) == ["x0", "x1", "y"] and table.columns["y"] == ["a", "b", "a"]
    for name in ("x.npy", "xy.npz"):
        chunks = list(table_chunks(tmp_path / name, rows=2))
        assert [np.asarray(chunk.columns["x0"]).tolist() for chunk in chunks] == [[0, 2], [4]]


def test_bad_arrays_and_files_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "line.npy", np.zeros(3))
    np.savez(tmp_path / "named.npz", features=np.zeros((2, 2)))
    np.savez(tmp_path / "short.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    np.save(tmp_path / "number.npy", np.array(3.0))
    np.save(tmp_path / "cut.npy", np.zeros((3, 2)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-8])
    for name, message in {
        "pickled.npy": "cannot be read as numpy arrays",
        "line.npy": r"of shape \(3,\)",
        "named.npz": "expected an array named x",
        "number.npy": r"of shape \(\): an array of rows is needed",
        "cut.npy": "cannot be read as numpy arrays",
        "short.npz": r"3 rows of x and y of shape \(2,\)",
    }.items():
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_table(written(tmp_path, "a,b\n", "text.parquet"))
    with pytest.raises(ValueError, match="suffix '.xlsx'"):
        read_table(written(tmp_path, "", "book.xlsx"))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_table(tmp_path / "absent.csv")


def test_take_keeps_the_order() -> None:
    table = Table({"a": ["p", "q", "r"], "b": np.array([1.0, 2.0, 3.0])}).take(np.array([2, 0]))
    assert table.columns["a"] == ["r", "p"]
    np.testing.assert_array_equal(table.columns["b"], [3.0, 1.0])


def test_wide_headers_are_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(",".join(f"c{index}" for index in range(40_000)) + "\n" + ",".join("1" * 40_000) + "\n")
    start = time.process_time()
    assert len(read_table(file).columns) == 40_000
    assert time.process_time() - start < 5  # comparing every name with every other takes four times as long
