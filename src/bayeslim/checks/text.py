"""Names that somebody else chose, such as columns and classes, as text that can be shown."""

from __future__ import annotations

import re

__all__ = ["figure_text", "one_line", "visible"]

_UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""What commands a terminal, turns the direction of the text around it, or cannot stand in UTF-8 or XML."""


def visible(text: str) -> str:
    r"""Text in which control characters and the like stand as escapes; line breaks stay.

    Args:
        text: anything.

    Example:
        >>> visible("\x1b[31mred")
        '\\x1b[31mred'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str, most: int = 80) -> str:
    r"""Visible text on one line of bounded length.

    Args:
        text: anything.
        most: characters; what is longer ends in an ellipsis.

    Example:
        >>> one_line("two\nlines", most=6)
        'two l…'
    """
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"


def figure_text(text: str, most: int = 40) -> str:
    r"""Text that matplotlib does not read as mathematics, on one line of bounded length.

    Args:
        text: anything.
        most: characters, see `one_line`.

    Example:
        >>> figure_text("price in $")
        'price in \\$'
    """
    return one_line(text, most).replace("$", r"\$")
