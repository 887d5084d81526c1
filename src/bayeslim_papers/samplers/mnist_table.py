"""The results of the samplers experiment as a table."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bayeslim_papers.samplers.mnist_methods import METHODS
from bayeslim_papers.tables import spread

__all__ = ["table"]

COLUMNS = (
    "method",
    "networks",
    "accuracy %",
    "NLL",
    "ECE",
    "one network: accuracy %",
    "one network: NLL",
    "sparsity %",
    "weights after compaction",
    "bytes, times less",
    "multiply-adds, times less",
    "seconds",
)


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, in the order of `METHODS`, as Markdown."""
    runs: list[dict[str, Any]] = record["runs"]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for name in sorted({run["method"] for run in runs}, key=list(METHODS).index):
        group = [run for run in runs if run["method"] == name]
        cells = [
            name,
            str(group[0]["networks"]),
            *(spread([run[key] for run in group]) for key in ("accuracy", "nll", "ece")),
            *(f"{mean(run['single'][key] for run in group):.4g}" for key in ("accuracy", "nll")),
            f"{100 * mean(run['sparsity'] for run in group):.3g}",
            f"{mean(run['compacted']['weights'] for run in group):.0f}",
            *(_ratio(group, key) for key in ("mean_bytes", "multiply_adds")),
            f"{mean(run['seconds'] for run in group):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(group: list[dict[str, Any]], key: str) -> str:
    return f"{mean(run['dense'][key] / run['compacted'][key] for run in group):.3g}"
