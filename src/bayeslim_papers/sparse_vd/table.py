"""The results of the Sparse VD experiment as a table."""

from __future__ import annotations

from statistics import mean
from textwrap import fill
from typing import Any

from bayeslim_papers.tables import spread

__all__ = ["table"]

COLUMNS = (
    "recipe",
    "finish",
    "seeds",
    "error %",
    "of samples %",
    "compression",
    "sparsity per layer %",
    "compacted: weights, times less",
    "bytes, times less",
    "paper",
)

FEW_LAYERS = 6
"""As many have a number each."""


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds of every recipe and finish, as Markdown, and whether the goal is met."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    failed: list[str] = []
    met: list[str] = []
    for recipe in dict.fromkeys(run["recipe"] for run in record["runs"]):
        runs = [run for run in record["runs"] if run["recipe"] == recipe]
        for finish in ("trained", *record["finishes"]):
            results = [run[finish] for run in runs]
            good = [result for result in results if "failed" not in result]
            failed += [f"{recipe}, {finish}: {one['failed']}" for one in results if "failed" in one]
            if good:
                lines.append(_row(record, recipe, finish, good))
            if good and finish != "trained" and _meets(record["goal"], good):
                met.append(f"{recipe} ({finish}, {len(good)} seeds)")
    goal = record["goal"]
    if goal is not None:
        wanted = f"at most {goal['error']} % at no less than {goal['compression']} times, on average over the seeds"
        lines += ["", fill(f"Goal, {wanted}: {'met by ' + ', '.join(met) if met else 'not met'}.", 120)]
    if failed:
        lines += ["", "Failed:", "", *(f"- {reason}" for reason in failed)]
    return "\n".join(lines)


def _row(record: dict[str, Any], recipe: str, finish: str, results: list[dict[str, Any]]) -> str:
    cells = [recipe, finish, str(len(results)), *(_spread(results, key) for key in ("error", "sampled_error"))]
    if finish == "trained":
        return f"| {' | '.join([*cells, '1', *[''] * 4])} |"
    layers = [100 * mean(values) for values in zip(*(one["sparsity"].values() for one in results), strict=True)]
    cells += [_spread(results, "compression"), _per_layer(layers)]
    cells += [f"{_ratio(results, key):.3g}" for key in ("weights", "mean_bytes")]
    return f"| {' | '.join([*cells, _paper(record, recipe, finish, results)])} |"


def _per_layer(parts: list[float]) -> str:
    """One number per layer; of a deep network the least and the greatest."""
    if len(parts) > FEW_LAYERS:
        return f"{min(parts):.1f} to {max(parts):.1f} in {len(parts)} layers"
    return "-".join(f"{part:.1f}" for part in parts)


def _paper(record: dict[str, Any], recipe: str, finish: str, results: list[dict[str, Any]]) -> str:
    """The published numbers, and whether ours reach them."""
    theirs = record["paper"].get(recipe)
    if theirs is None or theirs["finish"] != finish:
        return ""
    slack = record["tolerance"]
    bounds = {
        "error": theirs["error"] + slack["error"],
        "compression": theirs["compression"] * (1 - slack["compression"]),
    }
    verdict = "reached" if _meets(bounds, results) else "missed"
    return f"{theirs['error']} % at {theirs['compression']}: {verdict}"


def _meets(bounds: dict[str, float] | None, results: list[dict[str, Any]]) -> bool:
    if bounds is None:
        return False
    error, compression = (mean(one[key] for one in results) for key in ("error", "compression"))
    return error <= bounds["error"] and compression >= bounds["compression"]


def _ratio(results: list[dict[str, Any]], key: str) -> float:
    return mean(one["dense"][key] / one["compacted"][key] for one in results)


def _spread(results: list[dict[str, Any]], key: str) -> str:
    return spread([one[key] for one in results])
