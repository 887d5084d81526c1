"""The results of the VDP++ experiment as tables, with the paper's tests."""

from __future__ import annotations

from statistics import mean
from typing import Any

from bayeslim.analysis import spearman
from bayeslim_papers.tables import spread

__all__ = ["table"]


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, then the tests, as Markdown."""
    runs: list[dict[str, Any]] = record.get("runs", [])
    if not runs:
        return _costs(record)
    names = list(dict.fromkeys(run["method"] for run in runs))
    by = {name: [run for run in runs if run["method"] == name] for name in names}
    lines = [
        "| method | accuracy % | NLL | ECE | accuracy % at -6 dB | without 90 % of the weights | infidelity | "
        "sensitivity-max |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, group in by.items():
        cells = [
            *(spread([run[key] for run in group]) for key in ("accuracy", "nll", "ece")),
            spread([100 * run["noise"][0]["accuracy"] for run in group]),
            spread([100 * _pruned(run, 0.9) for run in group]),
            *(spread([run[key] for run in group]) for key in ("infidelity", "sensitivity_max")),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    noisy = [name for name in names if name != "det"]
    curves = {name: _variances(by[name]) for name in noisy}
    lines += ["", f"| variance of the predicted class over its value at -6 dB | {' | '.join(noisy)} |"]
    lines.append("|---" * (1 + len(noisy)) + "|")
    for level, values in zip(_levels(runs), zip(*curves.values(), strict=True), strict=True):
        lines.append(f"| {level} | {' | '.join(f'{value:.3g}' for value in values)} |")
    if "vdp" in by and "by_samples" in by["vdp"][0]:
        lines += ["", "| vdp predicts by | accuracy % | NLL | ECE | OOD AUROC | seconds |", "|---|---|---|---|---|---|"]
        for title, pick in (("one moments pass", None), ("200 samples", "by_samples"), ("first order", "by_taylor")):
            scores = [run if pick is None else run[pick] for run in by["vdp"]]
            keys = ("accuracy", "nll", "ece", "ood_auroc", "predict_seconds")
            lines.append(f"| {title} | {' | '.join(spread([s[key] for s in scores]) for key in keys)} |")
    return "\n".join([*lines, "", *_tests(by, curves), "", _costs(record)])


def _costs(record: dict[str, Any]) -> str:
    """Time and memory of a training step over those of the plain network in the same mode."""
    lines = ["| training step | ms | over det | peak memory over det |", "|---|---|---|---|"]
    found: dict[str, dict[str, float]] = record.get("costs", {})
    for name, cost in found.items():
        base = found[f"det, {name.split(', ')[1]}"]
        memory = f"{cost['peak_bytes'] / base['peak_bytes']:.2f}" if base["peak_bytes"] else "-"
        time = cost["milliseconds"]
        lines.append(f"| {name} | {time:.3g} | {time / base['milliseconds']:.2f} | {memory} |")
    if "pass_over_det" in record:
        lines += ["", f"One moments pass takes {record['pass_over_det']:.2f} times as long as a plain one."]
    return "\n".join(lines)


def _tests(by: dict[str, list[dict[str, Any]]], curves: dict[str, list[float]]) -> list[str]:
    """The paper's tests, where there are seeds enough."""
    if min(map(len, by.values())) < 2 or "det" not in by or "vdp" not in by:
        return []
    from scipy import stats

    def p_value(a: list[float], b: list[float]) -> float:
        found: Any = stats.ttest_ind(a, b, equal_var=False) if {*a, *b} - {a[0]} else None
        return 1.0 if found is None else float(found.pvalue)

    groups = {name: [run["accuracy"] for run in group] for name, group in by.items() if name != "vdp-cov"}
    anova: Any = stats.f_oneway(*groups.values())
    lines = ["The paper's tests:", "", f"- ANOVA of the accuracies of {', '.join(groups)}: p = {anova.pvalue:.2g}"]
    for name in [name for name in by if name != "det"]:
        theirs, ours = ([100 * run["noise"][0]["accuracy"] for run in by[key]] for key in ("det", name))
        p = p_value(ours, theirs)
        lines.append(f"- accuracy at -6 dB, {name} against det: {mean(ours) - mean(theirs):+.2f} points, p = {p:.2g}")
        monotone = all(a >= b for a, b in zip(curves[name], curves[name][1:], strict=False))
        lines.append(f"- variance of {name} falls with the SNR throughout: {'yes' if monotone else 'no'}")
    for key in ("infidelity", "sensitivity_max"):
        ours, theirs = ([run[key] for run in by[name]] for name in ("vdp", "det"))
        p = p_value(ours, theirs)
        lines.append(f"- {key}, vdp {mean(ours):.3g} against det {mean(theirs):.3g}: p = {p:.2g}")
    if "vdp-cov" in curves:
        lines.append(
            f"- rank correlation of the curves of vdp-cov and vdp: {spearman(curves['vdp-cov'], curves['vdp']):.2f}"
        )
    return lines


def _levels(runs: list[dict[str, Any]]) -> list[str]:
    return [f"{point['snr']:g} dB" for point in runs[0]["noise"]]


def _variances(group: list[dict[str, Any]]) -> list[float]:
    """The variance at every level over that at the first, averaged over seeds."""
    curves = [[point["variance"] / run["noise"][0]["variance"] for point in run["noise"]] for run in group]
    return [mean(level) for level in zip(*curves, strict=True)]


def _pruned(run: dict[str, Any], fraction: float) -> float:
    return next(point["accuracy"] for point in run["pruned"] if point["fraction"] == fraction)
