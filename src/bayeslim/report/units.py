"""Numbers as people read them."""

from __future__ import annotations

import math

__all__ = ["number"]


def number(value: float) -> str:
    """A number as people read it: large and whole ones with separators, others with four figures.

    Example:
        >>> number(0.123456), number(42.0)
        ('0.1235', '42')
    """
    if not math.isfinite(value):
        return "\N{EN DASH}"
    if abs(value) < 1e4:
        shown = f"{value:.4g}".replace("e-0", "e-")
    elif abs(value) < 1e9:
        shown = f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    else:
        shown = f"{value:.3g}".replace("e+0", "e").replace("e+", "e")
    return shown.replace("-", "\N{MINUS SIGN}")
