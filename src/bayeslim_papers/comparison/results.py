"""The results as tables, and the numbers that results.md tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from statistics import mean, stdev
from typing import Any

from bayeslim_papers.record import Record
from bayeslim_papers.tables import by_method, markdown

__all__ = ["above", "ratios", "table", "top_of_the_grid"]

Runs = list[dict[str, Any]]
REGRESSION = {"RMSE": "rmse", "NLL": "nll", "95 % coverage": "coverage95"}
CLASSES = {"accuracy %": "accuracy", "NLL": "nll", "ECE": "ece", "OOD AUROC": "ood_auroc"}
RANKED: dict[str, Callable[[float], float]] = {
    "rmse": lambda value: value,
    "nll": lambda value: value,
    "coverage95": lambda value: abs(value - 0.95),
}


def table(record: dict[str, Any]) -> str:
    """One table per data set, means ± standard errors over splits or seeds; for several sets also mean ranks."""
    sets = by_method(record, "data")
    texts = [_of_set(record, name, runs) for name, runs in sets.items()]
    tables = [name for name, runs in sets.items() if any("rmse" in run for run in runs)]
    if len(tables) > 1:
        texts.append(_ranks([run for run in record["runs"] if "skipped" not in run], tables))
    return "\n\n".join(texts)


def _of_set(record: dict[str, Any], name: str, runs: Runs) -> str:
    scores = REGRESSION if any("rmse" in run for run in runs) else CLASSES
    heads = ["method", "runs", *scores, "slim network: " + next(iter(scores)), "sparsity %", "KiB", "slim KiB"]
    heads += ["training, x MAP", "predicting, x MAP"]
    rows: list[list[str]] = []
    for method, own in by_method(runs).items():
        done = [run for run in own if "skipped" not in run]
        if not done:
            rows.append([method, "0", own[0]["skipped"], *[""] * (len(heads) - 3)])
            continue
        failed = f" ({len(own) - len(done)} diverged)" if len(done) < len(own) else ""
        times = record["costs"].get(name, {}).get(method)
        rows.append(
            [
                method,
                f"{len(done)}{failed}",
                *(_spread([run[key] * (100 if key == "accuracy" else 1) for run in done]) for key in scores.values()),
                _spread([run["single"] * (100 if scores is CLASSES else 1) for run in done]),
                f"{100 * mean(run['sparsity'] for run in done):.0f}",
                *(_kib([run[key] for run in done]) for key in ("bytes", "slim_bytes")),
                *("-" if times is None else f"{times[f'{key}_ratio']:.3g}" for key in ("train", "predict")),
            ]
        )
    return f"### {name}\n\n{markdown(heads, rows)}"


def _ranks(runs: Runs, sets: Sequence[str]) -> str:
    """Mean over data sets of a method's place by its mean over splits, 1 the best; it needs runs on all sets."""
    means: dict[str, dict[tuple[str, str], float]] = {}
    for method, own in by_method(runs).items():
        groups = by_method(own, "data")
        if groups.keys() >= set(sets):
            means[method] = {
                (name, key): judge(mean(run[key] for run in groups[name]))
                for name in sets
                for key, judge in RANKED.items()
            }
    rows: list[list[str]] = []
    for method, own in means.items():
        places = [
            mean(1 + sum(other[name, key] < own[name, key] for other in means.values()) for name in sets)
            for key in RANKED
        ]
        rows.append([method, *(f"{place:.3g}" for place in places)])
    heads = ["method", "RMSE", "NLL", "coverage nearest 95 %"]
    return f"### Mean rank over the sets\n\n{markdown(heads, rows)}"


def _kib(sizes: list[int]) -> str:
    """Their mean, of four significant digits or more, and never with a power of ten."""
    size = mean(sizes) / 1024
    return f"{size:.0f}" if size >= 1000 else f"{size:.4g}"


def _spread(values: list[float]) -> str:
    """The mean and its standard error."""
    error = f" ± {stdev(values) / math.sqrt(len(values)):.2g}" if len(values) > 1 else ""
    return f"{mean(values):.4g}{error}"


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
