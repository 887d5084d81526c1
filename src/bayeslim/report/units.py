"""Numbers as people read them, and scores in the reader's unit."""

from __future__ import annotations

import math

from bayeslim.likelihoods.base import Likelihood

__all__ = ["in_target_unit", "number"]


def in_target_unit(scores: dict[str, float], likelihood: Likelihood, std: float) -> dict[str, float]:
    """Scores of a standardised regression in the target's own unit: `rmse std` and `nll + ln std`.

    Args:
        scores: as of `bl.evaluate`; those that are absent stay so.
        likelihood: classes have no unit.
        std: standard deviation by which the targets were divided.

    Example:
        >>> in_target_unit({"rmse": 0.5}, bl.likelihoods.Gaussian(), std=10.0)
        {'rmse': 5.0}
    """
    if likelihood.bounded:
        return dict(scores)
    scaled = {"nll": lambda value: value + math.log(std), "rmse": lambda value: value * std}
    return {name: scaled[name](value) if name in scaled else value for name, value in scores.items()}


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
