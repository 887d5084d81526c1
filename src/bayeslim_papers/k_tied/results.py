"""The results beside the paper's, as tables, and the numbers that results.md tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bayeslim_papers.k_tied.paper import STANDARD_ERRORS, rows
from bayeslim_papers.record import Record
from bayeslim_papers.tables import Runs, average, by, by_method, markdown, spread

__all__ = ["cost", "gaps", "kl_by_adam_alone", "rows", "table"]

NAMES = {"nelbo": "-ELBO", "nll": "NLL", "accuracy": "accuracy %", "brier": "Brier - 1", "ece": "ECE"}
"""Score -> its heading."""


def table(record: dict[str, Any]) -> str:
    """What was trained, what the probes found where there are any, and the truncated scales."""
    part = record.get("part", "mnist")
    groups = by_method(record, "posterior")
    groups = dict(sorted(groups.items(), key=lambda item: item[0] != "mean-field"))
    sections: list[str] = []
    if part != "resnet":
        own = {name: [run["annealed"] for run in runs] for name, runs in groups.items()}
        parameters = {name: runs[0]["parameters"] for name, runs in groups.items()}
        sections.append(_scores("posterior", own, rows(part, "figure 6"), parameters))
    if part == "mnist":
        sections.append(_probed(groups, record["config"]["probe_steps"]))
    if "mean-field" in groups:
        runs = groups["mean-field"]
        own = {"mean-field": [run["annealed"] for run in runs]}
        own |= {name: [run["truncated"][name] for run in runs] for name in runs[0]["truncated"]}
        tied = runs[0].get("tied_parameters")
        parameters = tied and {"mean-field": runs[0]["parameters"]} | tied
        sections.append(_scores("scales", own, rows(part, "table"), parameters))
    if part in STANDARD_ERRORS:
        shown = ", ".join(f"{name} {error}" for name, error in zip(NAMES.values(), STANDARD_ERRORS[part], strict=False))
        source = "table 3" if part == "resnet" else "figure 6"
        sections.append(f"Largest standard errors of the paper's numbers in {source}, over test examples: {shown}.")
    return "\n\n".join(sections)


def _scores(title: str, own: Mapping[str, Runs], paper: dict[str, Any], parameters: dict[str, int] | None) -> str:
    """One row per posterior or rank: its scores, the paper's in parentheses, its parameters if given."""
    keys = list(next(iter(own.values()))[0])
    note = " (paper)" if paper else ""
    lines: list[list[str]] = []
    for name, scores in own.items():
        theirs = paper.get(name, ())
        cells = [spread([values[key] for values in scores]) for key in keys]
        cells = [f"{cell} ({theirs[i]})" if i < len(theirs) else cell for i, cell in enumerate(cells)]
        lines.append([name, *cells, *([str(parameters[name])] if parameters else [])])
    return markdown([title, *(NAMES[key] + note for key in keys), *(["parameters"] if parameters else [])], lines)


def _probed(groups: Mapping[str, Runs], steps: Sequence[int]) -> str:
    lines: list[list[str]] = []
    for name, runs in groups.items():
        cells = [
            ", ".join(average(f"probes/{place}/{key}")(runs) for place in range(len(steps)))
            for key in ("snr_median", "validation_nelbo")
        ]
        paper = [", ".join(map(str, values)) for values in rows("mnist", "figure 6 right")[name]]
        lines.append([name, *(f"{ours} ({theirs})" for ours, theirs in zip(cells, paper, strict=True))])
    at = ", ".join(map(str, steps))
    return markdown(["posterior", f"scale-gradient SNR (median) at {at} (paper)", "validation -ELBO (paper)"], lines)


def gaps(record: Record, score: str) -> list[float]:
    """Our averages less the paper's in figure 6, from the least to the greatest."""
    place = ("nelbo", "nll", "accuracy").index(score)
    ours = by(record, f"annealed/{score}", "posterior")
    paper = rows(record.get("part", "mnist"), "figure 6")
    return sorted(value - paper[name][place] for name, value in ours.items())


def cost(record: Record, rank: int) -> float:
    """What cutting the scales of mean-field to a rank adds to its -ELBO."""
    whole, cut = (
        by(record, path, "posterior", posterior="mean-field")
        for path in ("annealed/nelbo", f"truncated/rank {rank}/nelbo")
    )
    return cut["mean-field"] - whole["mean-field"]


def kl_by_adam_alone(config: dict[str, Any]) -> list[str]:
    """Nats an image at the probed steps, if every log scale grew by the learning rate in every step.

    `(weights / images) (ln(prior_std / scale) - 0.5 - lr step)`: the KL of a small scale, its mean left out.
    """
    first, second = config["sizes"][:2]
    weights = first * second + second**2 + second * 10
    start = math.log(config["prior_std"] / config["probe_scale"]) - 0.5
    return [f"{weights / 50_000 * (start - config['probe_lr'] * step):.1f}" for step in config["probe_steps"]]
