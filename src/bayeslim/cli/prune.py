"""`bayeslim prune`."""

from __future__ import annotations

import dataclasses
import math
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from bayeslim.data.target import Target
    from bayeslim.pruning.curve import CurvePoint

__all__ = ["command", "in_unit_of", "sparsest"]


def command(
    run: Path,
    /,
    *,
    threshold: float | None = None,
    tolerance: float = 0.002,
    samples: int = 20,
    keep_shape: bool = False,
    device: str = "auto",
) -> None:
    """Remove the weights that are noise, and with them the units that are no longer needed.

    The threshold is chosen on the validation data; the test data only judge the result. The trained network stays;
    the pruned one is stored beside it, replaces an earlier one, and is what the other commands then use.

    Args:
        run: folder of the run.
        threshold: remove weights with log alpha above this; default: the one that removes most within the tolerance.
        tolerance: what may be lost: a rise of the validation nll by this many nats, or by its standard error if that
            is more.
        samples: posterior samples per measurement; 0 uses the mean weights.
        keep_shape: only set weights to zero; do not make the network smaller.
        device: auto (an accelerator if there is one), cpu, cuda, ...
    """
    from rich.console import Console

    from bayeslim.architecture import describe
    from bayeslim.cli.overflow import overflow_explained, refuse_held_out
    from bayeslim.cli.tables import print_scores
    from bayeslim.named_models import resolved_device
    from bayeslim.pruning import compact, footprint, prune_, prune_curve
    from bayeslim.pruning.footprint import table
    from bayeslim.runs import Run

    opened = Run(run)
    place = resolved_device(device)
    before, pruned = (opened.model("trained").to(place) for _ in range(2))
    splits = opened.splits()
    refuse = partial(refuse_held_out, before, splits, opened.preprocessing)
    facts: dict[str, object] = {}
    if threshold is None:
        with overflow_explained(refuse):
            curve = prune_curve(before, splits.validation, samples=samples)
        points = [in_unit_of(opened.preprocessing.target, point) for point in curve.points]
        chosen = sparsest(points, tolerance)
        Console().print(_table(points, chosen))
        threshold = chosen.threshold
        facts["curve"] = [dataclasses.asdict(point) for point in points]
    part = prune_(pruned, threshold=threshold)
    example = splits.train[0][:8].to(place)
    # A network that bl.load cannot build again keeps its shape, into which the masks are loaded.
    smaller = not keep_shape and describe(pruned) is not None
    after = compact(pruned, example) if smaller else pruned
    both = (("before", before), ("after", after))
    with overflow_explained(refuse):
        found = {name: opened.scores(model, splits.test, samples) for name, model in both}
    costs = footprint(before, example), footprint(after, example)
    facts |= {
        "threshold": threshold,
        "tolerance": tolerance,
        "pruned_per_layer": part,
        "compact": smaller,
        "test": found,
        "before": dataclasses.asdict(costs[0]),
        "after": dataclasses.asdict(costs[1]),
    }
    opened.save_pruned(after, facts)
    opened.write_metrics({"pruned": {"test": found["after"]}})
    print_scores("test data", found)
    Console().print(table(*costs))
    if not smaller and not keep_shape:
        print(f"{opened.config.model} keeps its shape: networks of this kind cannot be stored smaller")
    print(f"pruned at log alpha > {threshold:.3g}; next: bayeslim export {shlex.quote(str(run))}")


def sparsest(points: list[CurvePoint], tolerance: float) -> CurvePoint:
    """The point that prunes most while the nll rises by no more than the tolerance or its own standard error.

    Args:
        points: of a `PruneCurve`.
        tolerance: in nats.

    Raises:
        ValueError: for a negative tolerance, or if no rise is a finite number.

    Example:
        >>> sparsest(curve.points, 0.002).threshold
    """
    from bayeslim.pruning.curve import sparsest_point

    if not tolerance >= 0:
        raise ValueError(f"--tolerance must not be negative, got {tolerance}: pass e.g. 0.002")
    return sparsest_point(points, lambda point: max(tolerance, point.nll_rise_error))


def in_unit_of(target: Target, point: CurvePoint) -> CurvePoint:
    """A point of a curve with its scores in the target's own unit, as those of `Run.scores`.

    Args:
        target: of the run.
        point: with scores of standardised targets.
    """
    from bayeslim.data.target import in_own_unit

    random = None if point.random is None else in_own_unit(point.random, target.std)
    return dataclasses.replace(point, scores=in_own_unit(point.scores, target.std), random=random)


def _table(points: list[CurvePoint], chosen: CurvePoint) -> Table:
    """The curve in 80 columns: what is lost at each threshold, and what random pruning would lose."""
    from rich.table import Table

    from bayeslim.pruning.curve import shown

    names = ("nll", "accuracy" if "accuracy" in chosen.scores else "rmse")
    title = "pruning by log alpha, on the validation data (* chosen)"
    table = Table("", "threshold", "pruned", *names, *(f"{name}, random" for name in names), title=title)
    for point in points:
        random = point.random or {}
        cells = [shown(found.get(name, math.nan)) for found in (point.scores, random) for name in names]
        table.add_row("*" if point is chosen else "", f"{point.threshold:.3g}", f"{point.sparsity:.1%}", *cells)
    return table
