"""Texts as rows of word numbers, with the vocabulary of the training texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from bayeslim.data.tables import Table

__all__ = ["TextInputs"]

_WORD = re.compile(r"[a-z0-9']+")
PAD, UNKNOWN = 0, 1
"""The token before a short text, and that of a word outside the vocabulary."""


@dataclass(frozen=True)
class TextInputs:
    """Word numbers, the last `length` words of a text, padded in front.

    Attributes:
        words: the vocabulary, most frequent first; word `i` has the number `i + 2`.
        length: words per text.
    """

    words: tuple[str, ...]
    length: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one prepared example."""
        return (self.length,)

    @property
    def vocabulary(self) -> int:
        """Number of tokens, padding and unknown included."""
        return len(self.words) + 2

    @staticmethod
    def fitted(texts: Iterable[str], most_words: int, length: int) -> TextInputs:
        """Collect the most frequent words of training texts, ties in alphabetical order.

        Example:
            >>> TextInputs.fitted(["to be or not to be"], most_words=2, length=4).words
            ('be', 'to')
        """
        counts = Counter(word for text in texts for word in _WORD.findall(text.lower()))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return TextInputs(tuple(ordered[:most_words]), length)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Word numbers, int64 (texts, length)."""
        number = {word: index + 2 for index, word in enumerate(self.words)}
        rows = torch.full((len(texts), self.length), PAD)
        for row, text in zip(rows, texts, strict=True):
            found = [number.get(word, UNKNOWN) for word in _WORD.findall(text.lower())[-self.length :]]
            if found:
                row[-len(found) :] = torch.tensor(found)
        return rows

    def encode_table(self, table: Table) -> Tensor:
        """The column `text` of a table."""
        column = table.columns.get("text")
        if not isinstance(column, list):
            raise ValueError(
                f"the table needs a column 'text' of texts, it has {', '.join(map(repr, list(table.columns)[:8]))}"
            )
        return self.encode(column)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs."""
        return {"kind": "text"} | asdict(self)

    @staticmethod
    def from_json(facts: dict[str, Any]) -> TextInputs:
        """Undo `to_json`."""
        if int(facts["length"]) < 1:
            raise ValueError(f"texts have no {facts['length']} words")
        return TextInputs(tuple(map(str, facts["words"])), int(facts["length"]))
