"""Runs by method, and numbers over seeds, for tables."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

__all__ = ["by_method", "spread"]


def by_method(record: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The runs of every method, in the order in which the methods came.

    Example:
        >>> list(by_method({"runs": [{"method": "sgd", "seed": 0}, {"method": "sgd", "seed": 1}]}))
        ['sgd']
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in record["runs"]:
        groups.setdefault(run["method"], []).append(run)
    return groups


def spread(values: Sequence[float]) -> str:
    """The mean, and the standard deviation where there are several.

    Example:
        >>> spread([94.0, 95.0])
        '94.5 ± 0.71'
    """
    return f"{mean(values):.4g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")
