"""The results of VDP++ on MNIST as tables, with the paper's tests."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

from bayeslim.analysis import spearman
from bayeslim_papers.tables import at, by_method, markdown, one_row_each, spreads

__all__ = ["table"]

COLUMNS = [
    ("accuracy %", spreads("accuracy")),
    ("NLL", spreads("nll")),
    ("ECE", spreads("ece")),
    ("accuracy % at -6 dB", spreads("noise/0/accuracy", 100)),
    ("without 90 % of the weights", spreads("pruned/fraction=0.9/accuracy", 100)),
    ("infidelity", spreads("infidelity")),
    ("sensitivity-max", spreads("sensitivity_max")),
]
PREDICTIONS = {"one moments pass": "", "200 samples": "by_samples/", "first order": "by_taylor/"}
"""How vdp may predict -> where its scores stand in a run."""


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, then the tests, as Markdown."""
    if not record.get("runs"):
        return _costs(record)
    groups = by_method(record)
    curves = {name: _variances(runs) for name, runs in groups.items() if name != "det"}
    levels = [f"{point['snr']:g} dB" for point in record["runs"][0]["noise"]]
    rows = [[level, *(f"{curve[place]:.3g}" for curve in curves.values())] for place, level in enumerate(levels)]
    parts = [
        one_row_each(groups, COLUMNS),
        markdown(["variance of the predicted class over its value at -6 dB", *curves], rows),
    ]
    vdp = groups.get("vdp", [{}])
    if "by_samples" in vdp[0]:
        keys = ("accuracy", "nll", "ece", "ood_auroc", "predict_seconds")
        rows = [[title, *(spreads(place + key)(vdp) for key in keys)] for title, place in PREDICTIONS.items()]
        parts.append(markdown(["vdp predicts by", "accuracy %", "NLL", "ECE", "OOD AUROC", "seconds"], rows))
    tests = _tests(groups, curves)
    return "\n\n".join([*parts, *(["The paper's tests:", "\n".join(tests)] if tests else []), _costs(record)])


def _costs(record: dict[str, Any]) -> str:
    """Time and memory of a training step over those of the plain network in the same mode."""
    rows: list[list[str]] = []
    found: dict[str, dict[str, float]] = record.get("costs", {})
    for name, cost in found.items():
        base, time = found[f"det, {name.split(', ')[1]}"], cost["milliseconds"]
        memory = f"{cost['peak_bytes'] / base['peak_bytes']:.2f}" if base["peak_bytes"] else "-"
        rows.append([name, f"{time:.3g}", f"{time / base['milliseconds']:.2f}", memory])
    text = markdown(["training step", "ms", "over det", "peak memory over det"], rows)
    if "pass_over_det" in record:
        text += f"\n\nOne moments pass takes {record['pass_over_det']:.2f} times as long as a plain one."
    return text


def _tests(groups: dict[str, list[dict[str, Any]]], curves: dict[str, list[float]]) -> list[str]:
    """The paper's tests, where there are seeds enough."""
    if min(map(len, groups.values())) < 2 or not {"det", "vdp"} <= groups.keys():
        return []
    from scipy import stats

    def compared(path: str, name: str, scale: float = 1.0) -> tuple[float, float, float]:
        """Averages of a method and of det, and p of Welch's test."""
        ours, theirs = ([scale * at(run, path) for run in groups[key]] for key in (name, "det"))
        found: Any = stats.ttest_ind(ours, theirs, equal_var=False) if len({*ours, *theirs}) > 1 else None
        return mean(ours), mean(theirs), 1.0 if found is None else float(found.pvalue)

    names = [name for name in groups if name != "vdp-cov"]
    anova: Any = stats.f_oneway(*([run["accuracy"] for run in groups[name]] for name in names))
    lines = [f"- ANOVA of the accuracies of {', '.join(names)}: p = {anova.pvalue:.2g}"]
    for name, curve in curves.items():
        ours, theirs, p = compared("noise/0/accuracy", name, 100)
        lines.append(f"- accuracy at -6 dB, {name} against det: {ours - theirs:+.2f} points, p = {p:.2g}")
        falls = all(a >= b for a, b in pairwise(curve))
        lines.append(f"- variance of {name} falls with the SNR throughout: {'yes' if falls else 'no'}")
    for key in ("infidelity", "sensitivity_max"):
        ours, theirs, p = compared(key, "vdp")
        lines.append(f"- {key}, vdp {ours:.3g} against det {theirs:.3g}: p = {p:.2g}")
    if "vdp-cov" in curves:
        rank = spearman(curves["vdp-cov"], curves["vdp"])
        lines.append(f"- rank correlation of the curves of vdp-cov and vdp: {rank:.2f}")
    return lines


def _variances(runs: list[dict[str, Any]]) -> list[float]:
    """The variance at every level over that at the first, averaged over seeds."""
    curves = [[point["variance"] / run["noise"][0]["variance"] for point in run["noise"]] for run in runs]
    return [mean(level) for level in zip(*curves, strict=True)]
