"""`bayeslim predict`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bayeslim.cli.parsing import call

__all__ = ["command", "main"]

CHUNK = 8192
"""Rows that are in memory together."""


def main(args: list[str]) -> None:
    """Parse and predict."""
    call(command, "predict", args)


def command(
    run: Path,
    /,
    *,
    input: Path,
    out: Path,
    samples: int = 100,
    method: Literal["sample", "moments", "mean"] = "sample",
    network: Literal["auto", "trained", "pruned"] = "auto",
    device: str = "auto",
    seed: int = 0,
    overwrite: bool = False,
) -> None:
    """Predict new rows, and say of each how sure the network is.

    Columns are matched by name and prepared as in training; columns that training did not have are ignored, and a text
    value that it did not have counts as none of the known ones. Classes: the most probable one, its probability, the
    entropy (all doubt, in nats), the mutual information (the part of it that more data would remove) and every
    probability. Numbers: mean, standard deviation, its two parts and a 95 % interval, in the target's own unit.

    Args:
        run: folder of the run.
        input: .csv, .parquet, .npy or .npz; for images also an image file or a folder of them.
        out: .csv, .parquet or .npz, one row per input row, in the same order.
        samples: posterior samples to average over.
        method: sample; moments (one pass that carries mean and variance); mean (the mean weights, no doubt about them).
        network: the trained or the pruned one; auto takes the pruned one where there is one.
        device: auto (an accelerator if there is one), cpu, cuda, ...
        seed: of the samples.
        overwrite: replace an existing `--out`.
    """
    from bayeslim.cli.answers import answer_writer, answers
    from bayeslim.named_models import resolved_device
    from bayeslim.predictive import predict
    from bayeslim.randomness import derived_seed
    from bayeslim.runs import Run

    opened = Run(run)
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists: pass --overwrite to replace it, or another --out")
    model, count = opened.model(network).to(resolved_device(device)), 0
    with answer_writer(out) as write:
        for index, x in enumerate(opened.preprocessing.prepared(input, CHUNK)):
            prediction = predict(
                model,
                x,
                samples=samples,
                method=method,
                keep_samples=method == "sample",
                seed=derived_seed(seed, index),
            )
            write(answers(prediction, opened.preprocessing.target))
            count += len(x)
        if not count:
            raise ValueError(f"{input} has no rows: there is nothing to predict")
    print(f"{out}: {count} rows")
