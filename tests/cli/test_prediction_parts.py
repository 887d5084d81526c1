"""Parts of answers: whole or absent, joined in bounded memory, and never mixed with those of another call."""

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from bayeslim.cli.answers import Answers, answer_format
from bayeslim.cli.prediction_parts import PredictionParts

FACTS = {"seed": 0, "samples": 3}


def columns(start: int, rows: int) -> Answers:
    numbers = np.arange(start, start + rows)
    return {"prediction": np.array(["a,b", "tulip"])[numbers % 2], "p": numbers / 7}


def begun(folder: Path, suffix: str = ".csv") -> PredictionParts:
    parts = PredictionParts(folder / f"out{suffix}")
    assert parts.begin(FACTS, start_over=False) == 0
    return parts


def as_csv(file: Path) -> bytes:
    return file.read_bytes()


def as_parquet(file: Path) -> object:
    return pyarrow.parquet.read_table(file).to_pydict()


def as_npz(file: Path) -> object:
    with np.load(file, allow_pickle=False) as arrays:
        return {name: (arrays[name].dtype, arrays[name].tolist()) for name in arrays.files}


@pytest.mark.parametrize(("suffix", "read"), [(".csv", as_csv), (".parquet", as_parquet), (".npz", as_npz)])
def test_joined_parts_read_as_one_that_was_never_cut(
    tmp_path: Path, suffix: str, read: Callable[[Path], object]
) -> None:
    parts = begun(tmp_path, suffix)
    for index in (2, 0, 1):  # whoever is done first writes first
        parts.write(index, columns(4 * index, 4 if index < 2 else 1))
    parts.join()
    whole = tmp_path / f"whole{suffix}"
    whole.write_bytes(answer_format(whole).part(columns(0, 9), True))
    assert read(tmp_path / f"out{suffix}") == read(whole)
    assert {file.name for file in tmp_path.iterdir()} == {f"out{suffix}", whole.name}


def test_csv_has_one_header_and_quotes_what_needs_it(tmp_path: Path) -> None:
    parts = begun(tmp_path)
    for index in range(2):
        parts.write(index, columns(index, 1))
    parts.join()
    assert parts.out.read_text() == 'prediction,p\n"a,b",0.0\ntulip,0.14285714285714285\n'


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_joining_holds_one_part_in_memory(suffix: str, tmp_path: Path) -> None:
    peaks: list[int] = []
    for count in (2, 16):
        folder = tmp_path / str(count)
        folder.mkdir()
        parts = begun(folder, suffix)
        for index in range(count):
            parts.write(index, columns(index, 20_000))
        tracemalloc.start()
        parts.join()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]  # eight times the rows


def test_only_the_same_answers_are_gone_on_with(tmp_path: Path) -> None:
    parts = begun(tmp_path)
    parts.write(0, columns(0, 2))
    assert parts.begin(FACTS, start_over=False) == 1 and parts.has(0) and not parts.has(1)
    with pytest.raises(FileExistsError, match=r"another call \(samples was 3, now 5; extra was None, now 1\).*--overw"):
        parts.begin({"seed": 0, "samples": 5, "extra": 1}, start_over=False)
    assert parts.has(0)
    assert parts.begin({"seed": 1}, start_over=True) == 0 and not parts.has(0)
    (parts.folder / "manifest.json").write_text("{")
    with pytest.raises(FileExistsError, match="its manifest is damaged"):
        parts.begin(FACTS, start_over=False)


def test_a_folder_of_someone_else_is_left_alone(tmp_path: Path) -> None:
    parts = PredictionParts(tmp_path / "out.csv")
    parts.folder.mkdir()
    assert parts.begin(FACTS, start_over=False) == 0  # empty: a kill right after it was made
    parts.discard()
    parts.folder.mkdir()
    (parts.folder / "thesis.tex").write_text("mine")
    for start_over in (False, True):
        with pytest.raises(FileExistsError, match="is in the way"):
            parts.begin(FACTS, start_over)
    assert (parts.folder / "thesis.tex").read_text() == "mine"


def test_a_missing_part_is_told_and_nothing_written(tmp_path: Path) -> None:
    parts = begun(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"00000000.csv is missing: give the same command again"):
        parts.join()
    for index in (0, 2):
        parts.write(index, columns(0, 1))
    with pytest.raises(FileNotFoundError, match=r"00000001.csv is missing"):
        parts.join()
    assert not parts.out.exists() and len(parts.finished()) == 2


def test_failed_joins_leave_the_old_file_and_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = begun(tmp_path)
    parts.write(0, columns(0, 1))
    parts.out.write_text("before")
    monkeypatch.setattr("bayeslim.cli.answers.shutil.copyfileobj", fail)
    with pytest.raises(OSError, match="no space"):
        parts.join()
    assert parts.out.read_text() == "before"
    assert {file.name for file in parts.folder.iterdir()} == {"00000000.csv", "manifest.json"}


def fail(source: io.BufferedReader, target: io.BufferedWriter) -> None:
    target.write(b"half of it")
    raise OSError("no space")


def test_the_manifest_is_plain_json_and_removed_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = begun(tmp_path)
    parts.write(0, columns(0, 1))
    assert json.loads((parts.folder / "manifest.json").read_text()) == FACTS
    removed: list[str] = []
    unlink = Path.unlink

    def recorded(self: Path, missing_ok: bool = False) -> None:
        removed.append(self.name)
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", recorded)
    parts.discard()
    assert removed == ["00000000.csv", "manifest.json"] and not parts.folder.exists()
