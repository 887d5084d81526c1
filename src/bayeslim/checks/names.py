"""What somebody may have meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["check_name", "did_you_mean"]


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


def check_name(option: str, name: str, known: Iterable[str]) -> None:
    """Raise ValueError with the names most like `name` unless it is known.

    Args:
        option: what the name is given for.
        name: what was typed.
        known: the names there are.

    Example:
        >>> check_name("--model", "mlp", ["mlp", "vgg"])
    """
    names = list(known)
    if name not in names:
        raise ValueError(f"{option} {name!r} is not known: {did_you_mean(name, names)}Choose from {', '.join(names)}")
