"""What results.md takes its tables and numbers from."""

from __future__ import annotations

from statistics import mean

from bayeslim_papers.record import Record
from bayeslim_papers.tables import by, markdown
from bayeslim_papers.vdp.images_table import table as images
from bayeslim_papers.vdp.mnist_table import table as methods

__all__ = ["images", "methods", "priors", "standard_errors"]


def priors(record: Record) -> str:
    """One row per prior and way of training."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for run in record["runs"]:
        way = f"moments, {run['expectation']}" if run["estimator"] == "moments" else run["estimator"]
        activation = "" if run["activation"] == "relu" else f", {run['activation']}"
        prior = run["prior"] if run["kl_weight"] == 1 else f"{run['prior']}, KL x {run['kl_weight']:g}"
        groups.setdefault((prior, way + activation), []).append(run)
    rows: list[list[str]] = []
    for (prior, way), runs in sorted(groups.items()):
        accuracy, nll, noisy = (mean(run[key] for run in runs) for key in ("accuracy", "nll", "accuracy_at_-6_dB"))
        left = mean(run["pruned"]["0.9"] for run in runs)
        few = " (1 seed)" if len(runs) == 1 else ""
        rows.append([prior, way + few, f"{accuracy:.2f}", f"{nll:.3f}", f"{noisy:.1f}", f"{left:.1f}"])
    heads = ["prior", "trained by", "accuracy %", "NLL", "accuracy % at -6 dB", "without 90 % of the weights"]
    return markdown(heads, rows)


def standard_errors(record: Record, method: str, other: str) -> float:
    """By how many standard errors of the test images the accuracies of two methods differ."""
    accuracy, count = by(record, "accuracy"), record["config"]["images"][1]
    variance = sum(accuracy[name] * (100 - accuracy[name]) / count for name in (method, other))
    return (accuracy[method] - accuracy[other]) / variance**0.5
