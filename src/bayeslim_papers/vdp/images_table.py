"""The results of a VDP++ experiment with images as tables."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean
from typing import Any

from bayeslim_papers.tables import Runs, by, by_method, markdown, one_row_each, spread, spreads

__all__ = ["table"]

Groups = dict[str, list[dict[str, Any]]]


def table(record: dict[str, Any]) -> str:
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
    return "\n".join(
        [one_row_each(groups, columns), "", how, *_beside_the_paper(record, groups), "", _variances(groups)]
    )


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


def _variances(groups: Groups) -> str:
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
