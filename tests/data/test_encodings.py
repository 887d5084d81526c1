"""Tables in other encodings than UTF-8 are read where a mark tells them, and refused with the right advice else."""

from pathlib import Path

import pytest

from bayeslim.data.tables import read_table, table_chunks

TEXT = "städte\tpreis\nKöln\t1\n\nGöteborg\t2\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_mark_tells_the_encoding(tmp_path: Path, encoding: str, newline: str) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(TEXT.replace("\n", newline).encode(encoding))
    assert read_table(file).columns == {"städte": ["Köln", "Göteborg"], "preis": ["1", "2"]}
    assert [len(chunk) for chunk in table_chunks(file, rows=1)] == [1, 1]


@pytest.mark.parametrize("order", ["le", "be"])
def test_both_orders_of_bytes(tmp_path: Path, order: str) -> None:
    for size in (16, 32):
        file = tmp_path / f"{size}.csv"
        file.write_bytes(f"\ufeff{TEXT}".encode(f"utf-{size}-{order}"))
        assert read_table(file).columns["preis"] == ["1", "2"]


def test_text_that_ends_in_the_middle_of_a_letter(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(TEXT.encode("utf-16")[:-1])
    with pytest.raises(ValueError, match=r"begins as UTF-16 text .*\(truncated data\).*save it again, as UTF-8"):
        read_table(file)


def test_without_a_mark_the_advice_names_what_it_may_be(tmp_path: Path) -> None:
    file = tmp_path / "my table.csv"
    file.write_bytes("a,b\n1,2\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match="zeros between its letters.*iconv -f utf-16le -t utf-8 'my table.csv'"):
        read_table(file)
    file.write_bytes(TEXT.encode("latin1"))
    with pytest.raises(ValueError, match=r"not UTF-8 text \(byte 0xe4\).*iconv -f latin1 -t utf-8 'my table.csv'"):
        read_table(file)
