"""How the performance page writes paragraphs, tables and ratios."""

import textwrap
from typing import Any

Records = dict[str, dict[str, Any]]
"""What was measured, by the name of its file."""


def wrapped(text: str) -> str:
    """A paragraph in lines of at most 120 characters."""
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]]).replace("  ", " ")


def ratio(cost: dict[str, float], scale: float = 1.0) -> str:
    middle, low, high = (cost[key] * scale for key in ("ratio", "ratio_low", "ratio_high"))
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def images_of(count: str) -> str:
    return "1 image" if count == "1" else f"{count} images"
