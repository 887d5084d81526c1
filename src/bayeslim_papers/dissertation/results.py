"""The results beside the dissertation's, as tables, and the numbers that results.md tells."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bayeslim_papers.dissertation.regression import GAUSSIAN_CONSTANT
from bayeslim_papers.record import Record
from bayeslim_papers.tables import Runs, by, by_method, markdown, spread, spreads

__all__ = ["GAUSSIAN_CONSTANT", "cost_of_pruning", "elbo_above", "layer_percents", "layers", "table"]

KINDS = ("none", "principled", "random")
ACCURACIES = [f"accuracy %, {kind} pruned (paper)" for kind in ("not", "principled", "random")]
BAND = {
    "MSE": "mse",
    "NLL": "test_nll",
    "in the 95 % band, %": "coverage",
    "width of the band": "width",
    "in that of the mean, %": "mean_coverage",
}
"""Headings of the regression, and where their numbers stand in a run."""


def table(record: dict[str, Any]) -> str:
    """Every part of a record as Markdown: mean and deviation over the seeds, the dissertation's numbers in brackets."""
    pieces: list[str] = []
    for part in record["config"]["parts"]:
        groups = by_method(record, "variant", part=part)
        if not groups:
            continue
        seeds = max(map(len, groups.values()))
        pieces.append(f"### {part} ({seeds} {'seed' if seeds == 1 else 'seeds'})")
        if part == "regression":
            pieces.append(_regression(groups))
        elif part == "imdb":
            pieces.append(_reviews(groups, record["paper"][part], record["tolerance"][part]))
        else:
            pieces.append(_networks(groups, record["paper"][part], record["tolerance"][part]))
            pieces.append(_sweep(groups))
    return "\n\n".join(piece for piece in pieces if piece)


def _networks(groups: dict[str, list[dict[str, Any]]], paper: dict[str, Any], tolerance: float) -> str:
    rows: list[list[str]] = []
    for variant, runs in groups.items():
        objective, method, pretraining = variant.split("/")
        theirs: dict[str, Any] = paper.get(f"{method}/{pretraining}", {})
        fine = [run for run in runs if not run["diverged"]]
        row = [objective, method, pretraining, layer_percents(runs, "sparsity_initial")]
        if not fine:
            rows.append([*row, f"all {len(runs)} diverged", *["-"] * 5])
            continue
        known = "-".join(map(str, theirs.get("sparsity", ())))
        row += [_beside(layer_percents(fine, "sparsity"), known), layer_percents(fine, "sparsity_log_alpha")]
        row += _judged(fine, theirs, tolerance)
        row[-1] += f"; {len(runs) - len(fine)} diverged" if len(fine) < len(runs) else ""
        rows.append(row)
    heads = ["objective", "method", "pre-training", "sparsity % before", "sparsity % (paper)", "log alpha > 3, %"]
    text = markdown([*heads, *ACCURACIES, "against the paper, not pruned"], rows)
    plain = [run["plain_accuracy"] for runs in groups.values() for run in runs if "plain_accuracy" in run]
    if plain and "plain" in paper:
        train, test = (spread([one[part] for one in plain]) for part in ("train", "test"))
        text += f"\n\nPlain networks: accuracy {train} % in training ({paper['plain']}), {test} % on test data."
    return text


def _sweep(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Error against the number of sampled networks, mean and deviation over repeated predictions of one network."""
    swept = {variant: run["sweep"] for variant, runs in groups.items() for run in runs if "sweep" in run}
    if not swept:
        return ""
    rows = [[name, *(f"{one['mean']:.2f} ± {one['std']:.2f}" for one in own.values())] for name, own in swept.items()]
    return markdown(["error % with T networks", *(f"T = {count}" for count in next(iter(swept.values())))], rows)


def _regression(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Energies of the dissertation's form are `N MSE + lambda KL / N`, the others N times the negative ELBO."""
    rows: list[list[str]] = []
    for variant, runs in groups.items():
        objective, method = variant.split("/")
        energy = spread([run["energy"] - (GAUSSIAN_CONSTANT if objective == "dissertation" else 0) for run in runs])
        scores = [spreads(key)(runs) for key in BAND.values()]
        rows.append([objective, method, *scores, energy, layer_percents(runs, "sparsity") or "-"])
    return markdown(["objective", "method", *BAND, "energy", "sparsity %"], rows)


def _reviews(groups: dict[str, list[dict[str, Any]]], paper: dict[str, Any], tolerance: float) -> str:
    rows: list[list[str]] = []
    for variant, runs in groups.items():
        objective, size, network = variant.split("/")
        theirs: dict[str, Any] = paper.get(f"{size}/{network}", {})
        sparse = "-"
        if network != "dense":
            parts = zip(runs[0]["layers"], layer_percents(runs, "sparsity").split("-"), strict=True)
            known = "-".join(map(str, theirs.get("sparsity", ())))
            sparse = _beside(", ".join(f"{name} {part}" for name, part in parts), known)
        own = [objective, size, network, str(runs[0]["vocabulary"]), sparse]
        rows.append([*own, *_judged(runs, theirs, tolerance)])
    heads = ["objective", "reviews", "network", "vocabulary", "sparsity % (paper)"]
    return markdown([*heads, *ACCURACIES, "against the paper, not pruned"], rows)


def _judged(runs: Runs, theirs: dict[str, Any], tolerance: float) -> list[str]:
    """The three accuracies, each beside the paper's, and how far that of networks that are not pruned is from it."""
    known: dict[str, float] = theirs.get("accuracy", {})
    cells = [
        _beside(spreads(f"accuracy/{kind}")(runs), str(known.get(kind, ""))) if kind in runs[0]["accuracy"] else "-"
        for kind in KINDS
    ]
    if not known:
        return [*cells, "-"]
    gap = mean(run["accuracy"]["none"] for run in runs) - known["none"]
    return [*cells, f"{'within' if abs(gap) <= tolerance else 'beyond'} {tolerance:g} ({gap:+.2f})"]


def layer_percents(runs: Runs, key: str, digits: int = 1) -> str:
    """Each layer's average over the runs in percent, as in `60.0-25.0`."""
    return "-".join(f"{100 * mean(layer):.{digits}f}" for layer in zip(*(run[key] for run in runs), strict=True))


def _beside(ours: str, theirs: str) -> str:
    return f"{ours} ({theirs})" if theirs else ours


IMAGES = ("mnist", "fashion-mnist")


def layers(record: Record, part: str, variant: str, key: str, digits: int = 1) -> str:
    """Each layer's average in percent."""
    return layer_percents(by_method(record, "variant", part=part)[variant], key, digits)


def elbo_above(record: Record) -> list[float]:
    """Accuracies under the ELBO less the published ones, in points, from the least to the greatest."""
    return sorted(
        by(record, "accuracy/none", "variant", part=part)[f"elbo/{name}"] - known["accuracy"]["none"]
        for part in IMAGES
        for name, known in record["paper"][part].items()
        if name != "plain"
    )


def cost_of_pruning(record: Record) -> float:
    """Points that pruning `molchanov` under the ELBO costs, at most."""
    lost: list[float] = []
    for part in IMAGES:
        whole, pruned = (by(record, f"accuracy/{kind}", "variant", part=part) for kind in ("none", "principled"))
        lost += [whole[name] - pruned[name] for name in whole if name.startswith("elbo/molchanov/")]
    return max(lost)
