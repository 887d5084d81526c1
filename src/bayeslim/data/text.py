"""Text for classification: the IMDB film reviews."""

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayeslim.data.cache import obtain
from bayeslim.data.compressed import read_bounded
from bayeslim.data.sources import IMDB_SOURCE, Split, check_split

_LIMIT = 256 << 20  # bytes of all reviews as JSON lines; the real file has 69 MB
_LONGEST = 1 << 20  # bytes of one review; the longest has 14 kB
_REVIEW_NAME = re.compile(r"(\d{1,9})_(\d{1,2})\.txt")


@dataclass(frozen=True, eq=False)
class TextData:
    """Labelled texts.

    Attributes:
        texts: N texts.
        y: int64 (N,), 0 for a negative and 1 for a positive text.
        ratings: int64 (N,), stars from 1 to 10.
    """

    texts: tuple[str, ...]
    y: Tensor
    ratings: Tensor

    def __len__(self) -> int:
        return len(self.texts)


def imdb(
    split: Split,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = False,
) -> TextData:
    """Load the IMDB reviews (Maas et al. 2011): 25,000 to train on and 25,000 to test on.

    Looks for ``imdb/imdb.jsonl.xz`` (a JSON object a line with the keys split, label, rating and
    text) and for the official folder ``aclImdb``, in which ``train/pos/17_9.txt`` is the positive
    training review 17 with 9 stars. Negative reviews (1 to 4 stars) come first, then the positive
    ones (7 to 10 stars), each in the order of their numbers: shuffle before training.

    Args:
        split: ``"train"`` or ``"test"``.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.
        download: fetch and unpack the official archive where it is missing.
        progress: show a progress bar while downloading.

    Returns:
        `TextData`; line breaks are the reviews' own ``<br />``.

    Example:
        >>> data = imdb("train")  # doctest: +SKIP
        >>> len(data), data.y.sum().item()  # doctest: +SKIP
        (25000, 12500)
    """
    check_split(split)
    layouts = ["imdb/imdb.jsonl.xz", f"aclImdb/{split}", f"imdb/aclImdb/{split}"]
    path = obtain("imdb", layouts, IMDB_SOURCE, root=root, download=download, progress=progress)
    rows = _folder_reviews(path) if path.is_dir() else _json_reviews(path, split)
    texts, labels, ratings = [], [], []
    for text, label, rating in rows:
        texts.append(text)
        labels.append(label)
        ratings.append(rating)
    if not texts:
        raise ValueError(f"`{path}` has no review of the split {split!r}: delete it and load the data again")
    return TextData(tuple(texts), torch.tensor(labels), torch.tensor(ratings))


def _json_reviews(path: Path, split: Split) -> Iterable[tuple[str, int, int]]:
    lines = read_bounded(path, _LIMIT).split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _bad_line(path, number, f"is not JSON ({error})") from error
        problem = _problem(row)
        if problem:
            raise _bad_line(path, number, problem)
        if row["split"] == split:
            yield row["text"], row["label"], row["rating"]


def _problem(row: Any) -> str:
    """Say what is wrong with a decoded line; nothing if it is a review."""
    if not isinstance(row, dict):
        return "is not a JSON object"
    if row.get("split") not in ("train", "test"):
        return f"has the split {row.get('split')!r}, expected 'train' or 'test'"
    if not isinstance(row.get("text"), str):
        return f"has the text {row.get('text')!r}, expected a string"
    for key, least, most in (("label", 0, 1), ("rating", 1, 10)):
        value = row.get(key)
        if type(value) is not int or not least <= value <= most:
            return f"has the {key} {value!r}, expected an integer from {least} to {most}"
    return ""


def _bad_line(path: Path, number: int, problem: str) -> ValueError:
    return ValueError(f"`{path}`, line {number}, {problem}: delete the file and load the data again")


def _folder_reviews(folder: Path) -> Iterable[tuple[str, int, int]]:
    for label, side in enumerate(("neg", "pos")):
        reviews = []
        for path in (folder / side).glob("*.txt"):
            match = _REVIEW_NAME.fullmatch(path.name)
            if match is None or not 1 <= int(match[2]) <= 10:
                raise ValueError(
                    f"`{path}` must be named NUMBER_RATING.txt with a rating from 1 to 10: remove "
                    "it or unpack the official archive again"
                )
            reviews.append((int(match[1]), int(match[2]), path))
        reviews.sort()
        # The archive numbers each folder from 0 without gaps; a gap means it broke off.
        if not reviews or [number for number, _, _ in reviews] != list(range(len(reviews))):
            raise ValueError(
                f"`{folder / side}` is incomplete: its {len(reviews)} reviews are not numbered "
                "0, 1, 2, ... without gaps; unpack the official archive again"
            )
        for _, rating, path in reviews:
            yield _read_review(path), label, rating


def _read_review(path: Path) -> str:
    try:
        return read_bounded(path, _LONGEST).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` is not UTF-8 ({error.reason}): unpack the official archive again") from error
