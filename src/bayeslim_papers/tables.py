"""Runs by method, numbers over seeds, and tables of them as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

__all__ = [
    "Runs",
    "at",
    "average",
    "by",
    "by_method",
    "highest",
    "lowest",
    "markdown",
    "one_row_each",
    "spread",
    "spreads",
]

Runs = Sequence[dict[str, Any]]
Column = Callable[[Runs], str]
"""What a table shows of the runs of one method."""


def by_method(record: Mapping[str, Any] | Runs, key: str = "method", **which: Any) -> dict[str, list[dict[str, Any]]]:
    """The runs of every method, in the order in which the methods came.

    A run has the name of its method at `key`; `which` says what else it must hold, as in `part="moons"`.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in record["runs"] if isinstance(record, Mapping) else record:
        if all(run[name] == value for name, value in which.items()):
            groups.setdefault(run[key], []).append(run)
    return groups


def at(run: Any, path: str) -> Any:
    """What stands at a path: keys, places in lists, `name=value` for the entry that says so, `*` for a mean of all.

    Example:
        >>> at({"pruned": [{"fraction": 0.5, "accuracy": 98.0}]}, "pruned/fraction=0.5/accuracy")
        98.0
    """
    step, _, rest = path.partition("/")
    if step == "*":
        return mean(at(one, rest) for one in run)
    if "=" in step:
        name, _, value = step.partition("=")
        found = next(one for one in run if str(one[name]) == value)
    else:
        found = run[int(step) if isinstance(run, list) else step]
    return at(found, rest) if rest else found


def by(
    record: Mapping[str, Any] | Runs, path: str, key: str = "method", scale: float = 1.0, **which: Any
) -> dict[str, float]:
    """The average over the runs of every method of what stands at a path, see `at`; methods without it are left out.

    Raises:
        KeyError: if no run has it.

    Example:
        >>> by({"runs": [{"method": "sgd", "scores": [0.5]}, {"method": "sgd", "scores": [1.0]}]}, "scores/0")
        {'sgd': 0.75}
    """
    found: dict[str, float] = {}
    for name, runs in by_method(record, key, **which).items():
        having = [run for run in runs if path.partition("/")[0] in run]
        if having:
            found[name] = scale * mean(at(run, path) for run in having)
    if not found:
        raise KeyError(path)
    return found


def lowest(values: Mapping[str, float], among: Collection[str] | None = None) -> str:
    """The name of the least value."""
    return min(values if among is None else among, key=lambda name: values[name])


def highest(values: Mapping[str, float], among: Collection[str] | None = None) -> str:
    """The name of the greatest value."""
    return max(values if among is None else among, key=lambda name: values[name])


def spread(values: Sequence[float]) -> str:
    """The mean, and the standard deviation where there are several.

    Example:
        >>> spread([94.0, 95.0])
        '94.5 ± 0.71'
    """
    return f"{mean(values):.4g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [f"| {' | '.join(row)} |" for row in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def one_row_each(groups: Mapping[str, Runs], columns: Sequence[tuple[str, Column]], first: str = "method") -> str:
    """A table with one row per method: columns are headings, and what stands below."""
    rows = ([name, *(column(runs) for _, column in columns)] for name, runs in groups.items())
    return markdown([first, *(head for head, _ in columns)], rows)


def spreads(path: str, scale: float = 1.0) -> Column:
    """A column of means and standard deviations, see `spread`, of what stands at a path, see `at`."""
    return lambda runs: spread([scale * at(run, path) for run in runs])


def average(path: str, how: str = ".4g", scale: float = 1.0) -> Column:
    """A column of means."""
    return lambda runs: format(scale * mean(at(run, path) for run in runs), how)
