"""Numbers that must lie in an interval."""

from __future__ import annotations

__all__ = ["check_number"]

PHRASES = {"(0, inf)": "be positive", "(0, inf]": "be positive", "[0, inf)": "be finite and not negative"}


def check_number(name: str, value: float, interval: str, advice: str) -> None:
    """Raise ValueError unless a number lies in an interval.

    Args:
        name: of the argument.
        value: the number; NaN lies in none.
        interval: as it is written in mathematics: a round bracket leaves its end out.
        advice: what to pass instead.

    Example:
        >>> check_number("noise", -1.0, "[0, inf)", "pass e.g. 0.1")
        Traceback (most recent call last):
        ValueError: `noise` must be finite and not negative, got -1.0: pass e.g. 0.1
    """
    low, high = (float(end) for end in interval[1:-1].split(","))
    try:
        above = low < value or (low == value and interval[0] == "[")
        inside = above and (value < high or (value == high and interval[-1] == "]"))
    except TypeError:  # no number
        inside = False
    if not inside:
        raise ValueError(f"`{name}` must {PHRASES.get(interval, f'lie in {interval}')}, got {value!r}: {advice}")
