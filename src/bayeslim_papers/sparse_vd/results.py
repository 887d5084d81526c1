"""The results beside the papers', as tables, and the numbers that results.md tells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import mean
from textwrap import fill
from typing import Any

from bayeslim_papers.record import Record
from bayeslim_papers.sparse_vd.views import SHIFTS, TURNS
from bayeslim_papers.tables import by_method, markdown, spread

__all__ = ["VIEWS", "best", "gamma_points", "passes", "points", "shrunk", "table", "told"]

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


VIEWS = len(SHIFTS) + len(TURNS)
NETWORKS = ("LeNet-300-100", "LeNet-5-Caffe")
"""Of the record of networks that were really made smaller."""


def passes(epochs: Iterable[int]) -> list[int]:
    """Passes over all views of the images in place of so many epochs."""
    return [math.ceil(one / VIEWS) for one in epochs]


def told(finish: Record, settings: Record) -> str:
    """What a finish does; early records have one learning rate for all."""
    cut = f"{'ln alpha above' if finish['by'] == 'log alpha' else 'mean below'} {finish['threshold']:g}"
    if finish.get("times"):
        cut = (
            f"largest {'ln alpha' if finish['by'] == 'log alpha' else 'means'}, {finish['times']:g} times fewer weights"
        )
    if not finish["tune"]:
        return f"prune by {cut}"
    epochs, rate = finish["tune"] * settings["tune_epochs"], finish.get("lr", settings.get("tune_lr"))
    parts = [cut, f"{epochs} epochs at {rate:g}"]
    ways = ["shifted by a pixel"] * finish.get("shift", False) + ["turned by some degrees"] * finish.get("turn", False)
    parts += [f"images also {' or '.join(ways)}"] * bool(ways)
    parts += ["targets half the posterior's prediction"] * finish["distil"]
    parts += [f"noise and a KL of weight {finish.get('beta', 0):g}"] * bool(finish.get("beta"))
    return ", ".join(parts)


def points(record: Record, without: int | None = None) -> dict[str, dict[str, tuple[float, float]]]:
    """Mean error in % and compression by recipe and finish, over all seeds or all but one."""
    found: dict[str, dict[str, list[Record]]] = {}
    for run in record["runs"]:
        for finish in record["finishes"]:
            if "failed" not in run[finish] and run["seed"] != without:
                found.setdefault(run["recipe"], {}).setdefault(finish, []).append(run[finish])
    return {
        recipe: {
            finish: (mean(one["error"] for one in results), mean(one["compression"] for one in results))
            for finish, results in finishes.items()
        }
        for recipe, finishes in found.items()
    }


def best(record: Record) -> tuple[str, str, float, float]:
    """Recipe, finish, error and compression of the least error at the goal's compression or more."""
    found = [(r, f, *point) for r, finishes in points(record).items() for f, point in finishes.items()]
    return min((one for one in found if one[3] >= record["goal"]["compression"]), key=lambda one: one[2])


def gamma_points(record: Record) -> list[tuple[float, float]]:
    """Those of the Gamma hyperprior by means below 0.01, from the least error to the greatest."""
    return sorted(own["magnitude"] for name, own in points(record).items() if name.startswith("gamma"))


def shrunk(record: Record) -> str:
    """The networks of `benchmarks/shrink.py`, one column each."""
    columns = [_column(record[name]) for name in NETWORKS]
    return markdown(["", *NETWORKS], [[what, *(column[what] for column in columns)] for what in columns[0]])


def _column(found: Record) -> dict[str, str]:
    size, times = found["bytes"], found["milliseconds"]
    before, after = found["unpruned"], found["pruned and compacted"]
    mean_weights, slim = found["unpruned, mean weights"], found["slim file, mean weights"]
    return {
        "weights pruned (log alpha > 3)": f"{100 * found['sparsity']:.1f} %",
        "bytes, float32 -> slim 16 bit": f"{size['dense float32']} -> {size['slim 16 bit']} ({size['ratio']:.0f}x)",
        "multiply-adds": "{before} -> {after}".format(**found["multiply-adds"]),
        **{f"{batch}, ms": _faster(times[batch], found["sparse layers"]) for batch in ("batch 1000", "batch 1")},
        "images for the next two rows": str(found["images scored by samples"]),
        "accuracy % by samples, unpruned -> pruned and compacted": _percents(before, after),
        "ECE, same": f"{before['ece']:.4f} -> {after['ece']:.4f}",
        "accuracy % of the mean weights, unpruned -> slim file": _percents(mean_weights, slim),
        "random pruning, same counts per layer: accuracy %": (
            f"{100 * found['random pruning, same counts']['accuracy']:.1f}"
        ),
        "compacted equals masked to": f"{found['compacted equals masked to']:.0e}",
    }


def _percents(before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{100 * before['accuracy']:.2f} -> {100 * after['accuracy']:.2f}"


def _faster(times: dict[str, float], layers: dict[str, str]) -> str:
    """Dense against the compacted network, with sparse layers where there are any."""
    all_dense = all(kind.startswith("dense") for kind in layers.values())
    best = times["compacted"] if all_dense else times["compacted, sparse"]
    return f"{times['dense']:.3g} -> {best:.3g} ({times['dense'] / best:.1f}x)"
