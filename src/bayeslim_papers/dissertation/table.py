"""The results of the dissertation's experiments as tables, beside its own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from bayeslim_papers.dissertation.regression import GAUSSIAN_CONSTANT
from bayeslim_papers.tables import spread

__all__ = ["by_variant", "layer_percents", "table"]

Runs = list[dict[str, Any]]


def table(record: dict[str, Any]) -> str:
    """Every part of a record as Markdown: mean and deviation over the seeds, the dissertation's numbers in brackets."""
    pieces: list[str] = []
    for part in record["config"]["parts"]:
        groups = by_variant(record, part)
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


def _networks(groups: dict[str, Runs], paper: dict[str, Any], tolerance: float) -> str:
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
        row += _accuracies(fine, theirs)
        lost = f"; {len(runs) - len(fine)} diverged" if len(fine) < len(runs) else ""
        rows.append([*row, _judgement(fine, theirs, tolerance) + lost])
    columns = ["objective", "method", "pre-training", "sparsity % before", "sparsity % (paper)", "log alpha > 3, %"]
    columns += [f"accuracy %, {kind} pruned (paper)" for kind in ("not", "principled", "random")]
    text = _markdown([*columns, "against the paper, not pruned"], rows)
    plain = [run["plain_accuracy"] for runs in groups.values() for run in runs if "plain_accuracy" in run]
    if plain and "plain" in paper:
        train, test = (spread([one[part] for one in plain]) for part in ("train", "test"))
        text += f"\n\nPlain networks: accuracy {train} % in training ({paper['plain']}), {test} % on test data."
    return text


def _sweep(groups: dict[str, Runs]) -> str:
    """Error against the number of sampled networks, mean and deviation over repeated predictions of one network."""
    swept = {variant: run["sweep"] for variant, runs in groups.items() for run in runs if "sweep" in run}
    if not swept:
        return ""
    counts = list(next(iter(swept.values())))
    rows = [
        [variant, *(f"{one[count]['mean']:.2f} ± {one[count]['std']:.2f}" for count in counts)]
        for variant, one in swept.items()
    ]
    return _markdown(["error % with T networks", *(f"T = {count}" for count in counts)], rows)


def _regression(groups: dict[str, Runs]) -> str:
    """Energies of the dissertation's form are `N MSE + lambda KL / N`, the others N times the negative ELBO."""
    keys = ("mse", "test_nll", "coverage", "width", "mean_coverage")
    columns = [
        "objective",
        "method",
        "MSE",
        "NLL",
        "in the 95 % band, %",
        "width of the band",
        "in that of the mean, %",
    ]
    rows: list[list[str]] = []
    for variant, runs in groups.items():
        objective, method = variant.split("/")
        constant = GAUSSIAN_CONSTANT if objective == "dissertation" else 0.0
        scores = [spread([run[key] for run in runs]) for key in keys]
        energy = spread([run["energy"] - constant for run in runs])
        rows.append([objective, method, *scores, energy, layer_percents(runs, "sparsity") or "-"])
    return _markdown([*columns, "energy", "sparsity %"], rows)


def _reviews(groups: dict[str, Runs], paper: dict[str, Any], tolerance: float) -> str:
    rows: list[list[str]] = []
    for variant, runs in groups.items():
        objective, size, network = variant.split("/")
        theirs: dict[str, Any] = paper.get(f"{size}/{network}", {})
        sparse = "-"
        if network != "dense":
            names = [f"{name} {part}" for name, part in zip(runs[0]["layers"], _parts(runs, "sparsity"), strict=True)]
            sparse = _beside(", ".join(names), "-".join(map(str, theirs.get("sparsity", ()))))
        row = [objective, size, network, str(runs[0]["vocabulary"]), sparse, *_accuracies(runs, theirs)]
        rows.append([*row, _judgement(runs, theirs, tolerance)])
    columns = ["objective", "reviews", "network", "vocabulary", "sparsity % (paper)"]
    columns += [f"accuracy %, {kind} pruned (paper)" for kind in ("not", "principled", "random")]
    return _markdown([*columns, "against the paper, not pruned"], rows)


def _accuracies(runs: Runs, theirs: dict[str, Any]) -> list[str]:
    """The three accuracies, each beside the paper's."""
    cells: list[str] = []
    for kind in ("none", "principled", "random"):
        values = [run["accuracy"][kind] for run in runs if kind in run["accuracy"]]
        known = str(theirs["accuracy"].get(kind, "")) if theirs else ""
        cells.append(_beside(spread(values), known) if values else "-")
    return cells


def _judgement(runs: Runs, theirs: dict[str, Any], tolerance: float) -> str:
    if not theirs:
        return "-"
    difference = mean(run["accuracy"]["none"] for run in runs) - theirs["accuracy"]["none"]
    return f"{'within' if abs(difference) <= tolerance else 'beyond'} {tolerance:g} ({difference:+.2f})"


def by_variant(record: dict[str, Any], part: str) -> dict[str, Runs]:
    """The runs of every variant of a part, in the order in which they came.

    Example:
        >>> list(by_variant({"runs": [{"part": "moons", "variant": "elbo/graves/bayesian"}]}, "moons"))
        ['elbo/graves/bayesian']
    """
    groups: dict[str, Runs] = {}
    for run in record["runs"]:
        if run["part"] == part:
            groups.setdefault(run["variant"], []).append(run)
    return groups


def layer_percents(runs: Runs, key: str, digits: int = 1) -> str:
    """Each layer's average over the runs in percent.

    Example:
        >>> layer_percents([{"sparsity": [0.5, 0.25]}, {"sparsity": [0.7, 0.25]}], "sparsity")
        '60.0-25.0'
    """
    return "-".join(_parts(runs, key, digits))


def _parts(runs: Runs, key: str, digits: int = 1) -> list[str]:
    return [f"{100 * mean(layer):.{digits}f}" for layer in zip(*(run[key] for run in runs), strict=True)]


def _beside(ours: str, theirs: str) -> str:
    return f"{ours} ({theirs})" if theirs else ours


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
