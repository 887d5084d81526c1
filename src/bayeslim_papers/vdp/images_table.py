"""The results of a VDP++ experiment with images as tables."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

from bayeslim_papers.tables import by_method, spread

__all__ = ["table"]


def table(record: dict[str, Any]) -> str:
    """Scores, costs over those of det, and the variance against noise; mean and standard deviation over seeds.

    Args:
        record: of `run`, perhaps read from a file. Seconds that were taken while other work ran on the same device say
            nothing: a record may hold None in their place.

    Example:
        >>> print(table(record))
    """
    groups, config = by_method(record), record["config"]
    noisiest = f"{_points(groups, 'noise')[0]['snr']:g} dB"
    removed = [f"without {100 * point['fraction']:g} %" for point in _points(groups, "pruned")]
    heads = ["method", "accuracy %", "NLL", "ECE", f"accuracy % at {noisiest}", *removed]
    heads += ["seconds an epoch", "over det", "peak memory over det"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, runs in groups.items():
        cells = [
            name,
            *(spread([run[key] for run in runs]) for key in ("accuracy", "nll", "ece")),
            spread([run["noise"][0]["accuracy"] for run in runs]),
            *(spread([run["pruned"][place]["accuracy"] for run in runs]) for place in range(len(removed))),
            _seconds(runs),
            _over_det(groups, name, "epoch_seconds"),
            _over_det(groups, name, "peak_bytes"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    how = f"{config['epochs']} epochs, batches of {config['batch_size']}, weight of the KL {config['kl_weight']:g}."
    return "\n".join([*lines, "", how, *_beside_the_paper(record, groups), "", *_variances(groups)])


def _beside_the_paper(record: dict[str, Any], groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Where vdp and det were run: how vdp compares with det, and what the paper and its tolerance allow."""
    if not {"det", "vdp"} <= groups.keys():
        return []
    det, vdp = groups["det"], groups["vdp"]
    part, points = (record["tolerance"][key] for key in ("seconds of an epoch over det", "accuracy % below det"))
    gap = mean(run["accuracy"] for run in vdp) - mean(run["accuracy"] for run in det)
    lines = [f"Accuracy of vdp over that of det: {gap:+.2f} points{' (too low)' if gap < -points else ''}."]
    if "-" not in (_seconds(det), _seconds(vdp)):
        paper = record["paper"]["seconds of an epoch over det"]["vdp"]
        ratio = mean(run["epoch_seconds"] for run in vdp) / mean(run["epoch_seconds"] for run in det)
        slow = " (too slow)" if ratio > paper * (1 + part) else ""
        lines.insert(0, f"An epoch of vdp over one of det: {ratio:.2f}, in the paper {paper}{slow}.")
    return lines


def _seconds(runs: list[dict[str, Any]]) -> str:
    """Of an epoch, where they mean something."""
    found = [run["epoch_seconds"] for run in runs]
    return "-" if None in found else spread(found)


def _variances(groups: dict[str, list[dict[str, Any]]]) -> list[str]:
    levels = [f"{point['snr']:g} dB" for point in _points(groups, "noise")]
    lines = [f"| variance of the predicted class over its largest | {' | '.join(levels)} | falls throughout |"]
    lines.append("|---" * (len(levels) + 2) + "|")
    for name, runs in groups.items():
        curve = [mean(run["noise"][place]["variance"] for run in runs) for place in range(len(levels))]
        if max(curve) == 0:
            continue
        falls = all(a >= b for a, b in pairwise(curve))
        cells = [name, *(f"{value / max(curve):.3g}" for value in curve), "yes" if falls else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _points(groups: dict[str, list[dict[str, Any]]], key: str) -> list[dict[str, Any]]:
    return next(iter(groups.values()))[0][key]


def _over_det(groups: dict[str, list[dict[str, Any]]], name: str, key: str) -> str:
    """The ratio of averages, where both were measured."""
    own, base = ([run[key] for run in groups.get(method, [])] for method in (name, "det"))
    if not base or None in (*own, *base):
        return "-"
    return f"{mean(own) / mean(base):.2f}"
