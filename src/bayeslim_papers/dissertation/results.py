"""What results.md takes its tables and numbers from."""

from __future__ import annotations

from bayeslim_papers.dissertation.regression import GAUSSIAN_CONSTANT
from bayeslim_papers.dissertation.table import layer_percents, table
from bayeslim_papers.record import Record
from bayeslim_papers.tables import by, by_method

__all__ = ["GAUSSIAN_CONSTANT", "cost_of_pruning", "elbo_above", "layers", "table"]

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
