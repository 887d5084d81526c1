"""What results.md takes its tables and numbers from."""

from __future__ import annotations

from collections.abc import Collection

from bayeslim_papers.comparison.table import table
from bayeslim_papers.record import Record

__all__ = ["above", "ratios", "table", "top_of_the_grid"]


def above(values: dict[str, float], bound: float) -> list[str]:
    """The names of values above a bound."""
    return [name for name, value in values.items() if value > bound]


def ratios(record: Record, key: str, of: str | None = None, but: Collection[str] = ()) -> list[float]:
    """Costs over those of MAP on all data sets, from the least to the greatest, of one method or of all but some."""
    costs = [(name, cost) for methods in record["costs"].values() for name, cost in methods.items()]
    return sorted(cost[key] for name, cost in costs if (name == of if of else name not in but))


def top_of_the_grid(record: Record, methods: Collection[str]) -> tuple[int, int]:
    """How often methods chose a learning rate, and how often the greatest of their grid."""
    top = {name: max(record["grids"][name]["learning rate"]) for name in methods}
    tried = [run["learning rate"] == top[run["method"]] for run in record["runs"] if run["method"] in methods]
    return len(tried), sum(tried)
