"""The results beside the paper's, as tables, and the numbers that results.md tells."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

from bayeslim.analysis import spearman
from bayeslim_papers.record import Record
from bayeslim_papers.tables import Runs, at, by, by_method, markdown, one_row_each, spread, spreads

__all__ = ["images", "methods", "priors", "standard_errors"]

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


def methods(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, then the tests, as Markdown."""
    if not record.get("runs"):
        return _costs(record)
    groups = by_method(record)
    curves = {name: _curve(runs) for name, runs in groups.items() if name != "det"}
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


def _curve(runs: list[dict[str, Any]]) -> list[float]:
    """The variance at every level over that at the first, averaged over seeds."""
    curves = [[point["variance"] / run["noise"][0]["variance"] for point in run["noise"]] for run in runs]
    return [mean(level) for level in zip(*curves, strict=True)]


Groups = dict[str, list[dict[str, Any]]]


def images(record: dict[str, Any]) -> str:
    """Scores, costs over those of det, and the variance against noise; mean and standard deviation over seeds.

    Args:
        record: of `run`, perhaps read from a file. Seconds that were taken while other work ran on the same device say
            nothing: a record may hold None in their place.
    """
    groups, config, first = by_method(record), record["config"], record["runs"][0]
    noisiest = f"accuracy % at {first['noise'][0]['snr']:g} dB"
    columns = [("accuracy %", spreads("accuracy")), ("NLL", spreads("nll")), ("ECE", spreads("ece"))]
    columns += [(noisiest, spreads("noise/0/accuracy"))]
    columns += [
        (f"without {100 * point['fraction']:g} %", spreads(f"pruned/{place}/accuracy"))
        for place, point in enumerate(first["pruned"])
    ]
    columns += [
        ("seconds an epoch", _seconds),
        ("over det", lambda runs: _over_det(groups, runs, "epoch_seconds")),
        ("peak memory over det", lambda runs: _over_det(groups, runs, "peak_bytes")),
    ]
    how = f"{config['epochs']} epochs, batches of {config['batch_size']}, weight of the KL {config['kl_weight']:g}."
    return "\n".join([one_row_each(groups, columns), "", how, *_beside_the_paper(record, groups), "", _falls(groups)])


def _beside_the_paper(record: dict[str, Any], groups: Groups) -> list[str]:
    """Where vdp and det were run: how vdp compares with det, and what the paper and its tolerance allow."""
    if not {"det", "vdp"} <= groups.keys():
        return []
    part, points = (record["tolerance"][key] for key in ("seconds of an epoch over det", "accuracy % below det"))
    accuracy = by(record, "accuracy")
    gap = accuracy["vdp"] - accuracy["det"]
    lines = [f"Accuracy of vdp over that of det: {gap:+.2f} points{' (too low)' if gap < -points else ''}."]
    if (ratio := _over_det(groups, groups["vdp"], "epoch_seconds")) != "-":
        paper = record["paper"]["seconds of an epoch over det"]["vdp"]
        slow = " (too slow)" if float(ratio) > paper * (1 + part) else ""
        lines.insert(0, f"An epoch of vdp over one of det: {ratio}, in the paper {paper}{slow}.")
    return lines


def _seconds(runs: Runs) -> str:
    """Of an epoch, where they mean something."""
    found = [run["epoch_seconds"] for run in runs]
    return "-" if None in found else spread(found)


def _falls(groups: Groups) -> str:
    levels = [point["snr"] for point in next(iter(groups.values()))[0]["noise"]]
    rows: list[list[str]] = []
    for name, runs in groups.items():
        curve = [mean(run["noise"][place]["variance"] for run in runs) for place in range(len(levels))]
        if max(curve) > 0:
            falls = all(a >= b for a, b in pairwise(curve))
            rows.append([name, *(f"{value / max(curve):.3g}" for value in curve), "yes" if falls else "no"])
    heads = ["variance of the predicted class over its largest", *(f"{snr:g} dB" for snr in levels), "falls throughout"]
    return markdown(heads, rows)


def _over_det(groups: Groups, runs: Runs, key: str) -> str:
    """The ratio of averages, where both were measured."""
    own, base = ([run[key] for run in some] for some in (runs, groups.get("det", [])))
    return "-" if not base or None in (*own, *base) else f"{mean(own) / mean(base):.2f}"


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
