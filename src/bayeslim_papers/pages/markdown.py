"""Markdown that fits: wrapped text, and tables that are not wider than the page."""

from __future__ import annotations

import itertools
import math
import re
import textwrap

__all__ = ["narrowed", "wrapped"]

WIDTH = 120
COLUMNS = 7
"""As many as the built documentation shows without scrolling."""
BOUND = "\0"
"""A space at which no line ends."""


def wrapped(text: str) -> str:
    r"""Paragraphs and lists in lines of at most 120 characters; tables stay as they are.

    Args:
        text: Markdown whose blocks are apart by empty lines, indented as you like.

    Example:
        >>> wrapped("one\ntwo\n\n- three\n  four")
        'one two\n\n- three four'
    """
    blocks = re.split(r"\n\s*\n", textwrap.dedent(text).strip())
    return "\n\n".join(block if block.startswith("|") else _wrapped_block(block) for block in blocks)


def _wrapped_block(block: str) -> str:
    items = [" ".join(item.split()) for item in re.split(r"^\s*(?=- )", block, flags=re.M) if item]
    return "\n".join(map(_wrapped_item, items))


def _wrapped_item(item: str) -> str:
    """A paragraph or an item; a mark that would mean something else at the start of a line stays with its word."""
    bound = re.sub(r"(?<=\w) (?=[-+*#>]+ )", BOUND, item)
    indent = "  " if item.startswith("- ") else ""
    lines = textwrap.fill(bound, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace(BOUND, " ")


def narrowed(text: str) -> str:
    r"""Tables of more than seven columns as several; the columns that tell rows apart stand in each.

    Args:
        text: Markdown; all but its wide tables stays as it is.

    Example:
        >>> narrowed("| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |")
        '| a | b | c |\n|---|---|---|\n| 1 | 2 | 3 |'
    """
    return "\n\n".join(_narrowed_table(block) if block.startswith("|") else block for block in text.split("\n\n"))


def _narrowed_table(block: str) -> str:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
    width, body = len(rows[0]), rows[2:]
    if width <= COLUMNS:
        return block
    keys = next((k for k in range(1, COLUMNS) if len({tuple(row[:k]) for row in body}) == len(body)), 1)
    count = math.ceil((width - keys) / (COLUMNS - keys))
    edges = [keys + part * (width - keys) // count for part in range(count + 1)]
    return "\n\n".join(
        "\n".join(f"| {' | '.join(row[:keys] + row[start:stop])} |" for row in rows if any(row[start:stop]))
        for start, stop in itertools.pairwise(edges)
    )
