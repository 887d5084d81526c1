import hashlib
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import torch

from bayeslim.data import imdb
from bayeslim.data.sources import KNOWN_SHA256

REVIEWS = [
    {"split": "train", "label": 0, "rating": 2, "id": 0, "text": "Dreadful."},
    {"split": "train", "label": 0, "rating": 4, "id": 1, "text": "Weak\u2028but short, naïve."},
    {"split": "train", "label": 1, "rating": 10, "id": 0, "text": "Great!<br />Twice."},
    {"split": "test", "label": 0, "rating": 1, "id": 0, "text": "No."},
    {"split": "test", "label": 1, "rating": 7, "id": 0, "text": "Yes 🎬"},
]


def write_lines(root: Path, lines: list[bytes], monkeypatch: pytest.MonkeyPatch) -> Path:
    path = root / "imdb" / "imdb.jsonl.xz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress(b"\n".join(lines) + b"\n"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(KNOWN_SHA256, "imdb/imdb.jsonl.xz", digest)
    return path


def encoded(*rows: Any) -> list[bytes]:
    return [json.dumps(row, ensure_ascii=False).encode() for row in rows]


def write_folder(root: Path) -> None:
    for row in REVIEWS:
        side = ("neg", "pos")[row["label"]]
        folder = root / "aclImdb" / row["split"] / side
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{row['id']}_{row['rating']}.txt"
        (folder / name).write_text(row["text"], encoding="utf-8", newline="")


def test_both_layouts_give_the_same_reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, folder = tmp_path / "lines", tmp_path / "folder"
    lines.mkdir()
    write_lines(lines, encoded(*REVIEWS), monkeypatch)
    write_folder(folder)
    for root in (lines, folder):
        data = imdb("train", root)
        assert data.texts == ("Dreadful.", "Weak\u2028but short, naïve.", "Great!<br />Twice.")
        assert data.y.tolist() == [0, 0, 1]
        assert data.ratings.tolist() == [2, 4, 10]
        assert data.y.dtype == data.ratings.dtype == torch.int64
        assert len(imdb("test", root)) == 2


def test_folder_reviews_are_sorted_by_number(tmp_path: Path) -> None:
    write_folder(tmp_path)
    folder = tmp_path / "aclImdb/train/neg"
    for number in range(2, 12):
        (folder / f"{number}_1.txt").write_text(str(number))
    assert imdb("train", tmp_path).texts[2:12] == tuple(str(number) for number in range(2, 12))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"{}", "has the split None"),
        *(
            (encoded(REVIEWS[0] | change)[0], problem)
            for change, problem in (
                ({"split": "valid"}, "has the split 'valid'"),
                ({"text": 3}, "has the text 3"),
                ({"label": 2}, "has the label 2, expected an integer from 0 to 1"),
                ({"label": True}, "has the label True"),
                ({"rating": 0}, "has the rating 0"),
                ({"rating": "9"}, "has the rating '9'"),
            )
        ),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: bytes, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path, [*encoded(REVIEWS[0]), line], monkeypatch)
    with pytest.raises(ValueError, match=f"line 2, {problem}") as caught:
        imdb("train", tmp_path)
    assert str(path) in str(caught.value)


def test_a_file_without_the_split_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(tmp_path, encoded(REVIEWS[0]), monkeypatch)
    with pytest.raises(ValueError, match="has no review of the split 'test'"):
        imdb("test", tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_lines(tmp_path, encoded(*REVIEWS), monkeypatch)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz` is corrupt"):
        imdb("train", tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(KNOWN_SHA256, "imdb/imdb.jsonl.xz", digest)
    with pytest.raises(ValueError, match=r"imdb.jsonl.xz` is damaged"):
        imdb("train", tmp_path)


def test_an_incomplete_folder_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "aclImdb/train/neg/0_2.txt").unlink()
    with pytest.raises(ValueError, match="neg` is incomplete: its 1 reviews"):
        imdb("train", tmp_path)
    (tmp_path / "aclImdb/test/pos/0_7.txt").unlink()
    with pytest.raises(ValueError, match="pos` is incomplete: its 0 reviews"):
        imdb("test", tmp_path)


@pytest.mark.parametrize("name", ["1_11.txt", "1_0.txt", "one_9.txt", "1.txt"])
def test_badly_named_reviews_are_refused(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path)
    (tmp_path / "aclImdb/train/pos" / name).write_text("?")
    with pytest.raises(ValueError, match=r"must be named NUMBER_RATING\.txt"):
        imdb("train", tmp_path)


def test_reviews_must_be_utf8(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "aclImdb/train/pos/0_10.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValueError, match=r"0_10.txt` is not UTF-8"):
        imdb("train", tmp_path)


def test_missing_reviews(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="`imdb` was not found"):
        imdb("train", tmp_path, download=False)
    with pytest.raises(ValueError, match="`split` must be"):
        imdb("unsup", tmp_path)  # pyright: ignore[reportArgumentType]
