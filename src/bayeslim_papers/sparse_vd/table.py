"""The results of the Sparse VD experiment as a table."""

from __future__ import annotations

from statistics import mean
from textwrap import fill
from typing import Any

from bayeslim_papers.tables import by_method, markdown, spread

__all__ = ["table"]

FEW_LAYERS = 6
"""So many have a number each."""
COLUMNS = ["recipe", "finish", "seeds", "error %", "of samples %", "compression", "sparsity per layer %"]
COLUMNS += ["compacted: weights, times less", "bytes, times less", "paper"]


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds of every recipe and finish, as Markdown, and whether the goal is met."""
    rows: list[list[str]] = []
    failed: list[str] = []
    met: list[str] = []
    goal = record["goal"]
    for recipe, runs in by_method(record, "recipe").items():
        for finish in ("trained", *record["finishes"]):
            good = [run[finish] for run in runs if "failed" not in run[finish]]
            failed += [f"- {recipe}, {finish}: {run[finish]['failed']}" for run in runs if "failed" in run[finish]]
            if good:
                rows.append(_row(record, recipe, finish, good))
            if good and finish != "trained" and goal is not None and _meets(goal, good):
                met.append(f"{recipe} ({finish}, {len(good)} seeds)")
    parts = [markdown(COLUMNS, rows)]
    if goal is not None:
        wanted = f"at most {goal['error']} % at no less than {goal['compression']} times, on average over the seeds"
        parts.append(fill(f"Goal, {wanted}: {'met by ' + ', '.join(met) if met else 'not met'}.", 120))
    return "\n\n".join([*parts, *(["Failed:", "\n".join(failed)] if failed else [])])


def _row(record: dict[str, Any], recipe: str, finish: str, results: list[dict[str, Any]]) -> list[str]:
    cells = [recipe, finish, str(len(results))]
    cells += [spread([one[key] for one in results]) for key in ("error", "sampled_error")]
    if finish == "trained":
        return [*cells, "1", *[""] * 4]
    layers = [100 * mean(values) for values in zip(*(one["sparsity"].values() for one in results), strict=True)]
    cells += [spread([one["compression"] for one in results])]
    if len(layers) > FEW_LAYERS:
        cells += [f"{min(layers):.1f} to {max(layers):.1f} in {len(layers)} layers"]
    else:
        cells += ["-".join(f"{part:.1f}" for part in layers)]
    for key in ("weights", "mean_bytes"):
        cells += [f"{mean(one['dense'][key] / one['compacted'][key] for one in results):.3g}"]
    return [*cells, _paper(record, recipe, finish, results)]


def _paper(record: dict[str, Any], recipe: str, finish: str, results: list[dict[str, Any]]) -> str:
    """The published numbers, and whether ours reach them."""
    theirs, slack = record["paper"].get(recipe), record["tolerance"]
    if theirs is None or theirs["finish"] != finish:
        return ""
    least = theirs["compression"] * (1 - slack["compression"])
    reached = _meets({"error": theirs["error"] + slack["error"], "compression": least}, results)
    return f"{theirs['error']} % at {theirs['compression']}: {'reached' if reached else 'missed'}"


def _meets(bounds: dict[str, float], results: list[dict[str, Any]]) -> bool:
    error, compression = (mean(one[key] for one in results) for key in ("error", "compression"))
    return error <= bounds["error"] and compression >= bounds["compression"]
