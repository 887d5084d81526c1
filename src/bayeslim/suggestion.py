"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean"]


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """The names most like `name` as a question for an error message, with a space behind; empty if none is.

    Args:
        name: what was typed.
        known: the names there are.
        most: how many to offer.

    Example:
        >>> did_you_mean("digitz", ["digits", "mnist"])
        'did you mean digits? '
    """
    close = difflib.get_close_matches(name, list(known), most, 0.4)
    return f"did you mean {' or '.join(close)}? " if close else ""
