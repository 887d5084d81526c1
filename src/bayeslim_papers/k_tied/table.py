"""The results beside the paper's, as Markdown; mean and standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from bayeslim_papers.k_tied.paper import STANDARD_ERRORS, rows
from bayeslim_papers.tables import spread

__all__ = ["table"]

NAMES = {"nelbo": "-ELBO", "nll": "NLL", "accuracy": "accuracy %", "brier": "Brier - 1", "ece": "ECE"}
"""Score -> its heading."""


def table(record: dict[str, Any]) -> str:
    """What was trained, what the probes found where there are any, and the truncated scales.

    Args:
        record: of `run`, perhaps read from a file.

    Example:
        >>> print(table(record))
    """
    part = record.get("part", "mnist")
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in sorted(record["runs"], key=lambda run: run["posterior"] != "mean-field"):
        groups.setdefault(run["posterior"], []).append(run)
    sections: list[list[str]] = []
    if part != "resnet":
        sections.append(_trained(part, groups))
    if part == "mnist":
        sections.append(_probed(part, groups, record["config"]["probe_steps"]))
    if "mean-field" in groups:
        sections.append(_truncated(part, groups["mean-field"]))
    errors = STANDARD_ERRORS.get(part)
    if errors:
        shown = ", ".join(f"{name} {error}" for name, error in zip(NAMES.values(), errors, strict=False))
        source = "table 3" if part == "resnet" else "figure 6"
        sections.append([f"Largest standard errors of the paper's numbers in {source}, over test examples: {shown}."])
    return "\n\n".join("\n".join(lines) for lines in sections)


def _trained(part: str, groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    paper = rows(part, "figure 6")
    own = {name: [run["annealed"] for run in runs] for name, runs in groups.items()}
    parameters = {name: runs[0]["parameters"] for name, runs in groups.items()}
    return _scores("posterior", own, paper, parameters)


def _truncated(part: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    own = {"mean-field": [run["annealed"] for run in runs]}
    own |= {name: [run["truncated"][name] for run in runs] for name in runs[0]["truncated"]}
    tied = runs[0].get("tied_parameters")
    return _scores("scales", own, rows(part, "table"), tied and {"mean-field": runs[0]["parameters"]} | tied)


def _scores(
    title: str, own: dict[str, list[dict[str, float]]], paper: dict[str, Any], parameters: dict[str, int] | None
) -> list[str]:
    """One row per posterior or rank: its scores, the paper's in parentheses, its parameters if given."""
    keys = list(next(iter(own.values()))[0])
    note = " (paper)" if paper else ""
    heads = [title, *(NAMES[key] + note for key in keys), *(["parameters"] if parameters else [])]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, scores in own.items():
        theirs = paper.get(name, ())
        cells = [spread([values[key] for values in scores]) for key in keys]
        cells = [f"{cell} ({theirs[i]})" if i < len(theirs) else cell for i, cell in enumerate(cells)]
        cells += [str(parameters[name])] if parameters else []
        lines.append(f"| {' | '.join([name, *cells])} |")
    return lines


def _probed(part: str, groups: dict[str, list[dict[str, Any]]], steps: Sequence[int]) -> list[str]:
    at = ", ".join(map(str, steps))
    lines = [f"| posterior | scale-gradient SNR (median) at {at} (paper) | validation -ELBO (paper) |", "|---|---|---|"]
    for name, runs in groups.items():
        cells = [
            ", ".join(f"{mean([run['probes'][i][key] for run in runs]):.4g}" for i in range(len(steps)))
            for key in ("snr_median", "validation_nelbo")
        ]
        theirs = [", ".join(map(str, values)) for values in rows(part, "figure 6 right")[name]]
        lines.append(f"| {name} | {cells[0]} ({theirs[0]}) | {cells[1]} ({theirs[1]}) |")
    return lines
