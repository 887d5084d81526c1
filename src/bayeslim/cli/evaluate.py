"""`bayeslim evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

__all__ = ["command"]


def command(
    run: Path,
    /,
    *,
    data: Path | None = None,
    part: Literal["test", "validation", "train"] = "test",
    samples: int = 100,
    network: Literal["auto", "trained", "pruned"] = "auto",
    device: str = "auto",
    json_out: Path | None = None,
) -> None:
    """Judge the network of a run: how good its answers are, and how honest its confidence.

    Args:
        run: folder of the run.
        data: a labelled table of your own, with the columns of the training data; default: data of the run.
        part: which part of the run's own data.
        samples: posterior samples to average over; 0 uses the mean weights.
        network: the trained or the pruned one; auto takes the pruned one where there is one.
        device: auto (an accelerator if there is one), cpu, cuda, ...
        json_out: also write the scores to this JSON file; one that is infinite is null there.
    """
    from bayeslim.cli.overflow import overflow_explained, refuse_far_rows
    from bayeslim.cli.tables import print_scores
    from bayeslim.named_models import resolved_device
    from bayeslim.runs import Run, json_document
    from bayeslim.storage import write_atomically

    opened = Run(run)
    model = opened.model(network).to(resolved_device(device))
    pair = getattr(opened.splits(), part) if data is None else opened.preprocessing.labelled(data)
    own = part if data is None else None
    with overflow_explained(lambda: refuse_far_rows(model, pair[0], opened.preprocessing, own)):
        found = opened.scores(model, pair, samples)
    print_scores(f"{run}, {len(pair[1])} rows", {part if data is None else data.name: found})
    if json_out is not None:
        write_atomically(json_out, json_document(found))
        print(f"scores: {json_out}")
