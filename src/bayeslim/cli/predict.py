"""`bayeslim predict`."""

from __future__ import annotations

import errno
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bayeslim.cli.prediction_parts import PredictionParts

__all__ = ["command"]

MOST_WORKERS = 256
"""Processes that one call may start; each holds a network of its own."""


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
    workers: int = 1,
    overwrite: bool = False,
) -> None:
    """Predict new rows, and say of each how sure the network is.

    Columns are matched by name and prepared as in training; columns that training did not have are ignored, and a text
    value that it did not have counts as none of the known ones. Classes: the most probable one, its probability, the
    entropy (all doubt, in nats), the mutual information (the part of it that more data would remove) and every
    probability. Numbers: mean, standard deviation, its two parts and a 95 % interval, in the target's own unit.

    Memory does not grow with the rows (except those of .npz inputs). Finished parts wait in a folder beside `--out`,
    and the file appears when all are there: after Ctrl-C, a kill or a full disk give the same command again to go on.
    torchrun shares the parts among its processes.

    Args:
        run: folder of the run.
        input: .csv, .parquet, .npy or .npz; for images also an image file or a folder of them.
        out: .csv, .parquet or .npz, one row per input row, in the same order.
        samples: posterior samples to average over.
        method: sample; moments (one pass that carries mean and variance); mean (the mean weights, no doubt about them).
        network: the trained or the pruned one; auto takes the pruned one where there is one.
        device: auto (an accelerator if there is one), cpu, cuda, ...
        seed: of the samples.
        workers: processes that predict side by side; the samples do not depend on it.
        overwrite: replace an existing `--out`, and unfinished answers of another call.
    """
    from bayeslim.cli.prediction_parts import PredictionParts
    from bayeslim.cli.prediction_work import PredictionJob, predict_in_workers, predict_share, ranks, total_over_ranks
    from bayeslim.runs import Run
    from bayeslim.runtime.progress_bar import progress_bar

    if workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}")
    if workers > MOST_WORKERS:
        raise ValueError(f"--workers must be at most {MOST_WORKERS}, got {workers}: pass the number of cores")
    Run(run).model(network)  # says what is missing before anything is written
    if out.exists() and not overwrite:
        raise FileExistsError(f"{out} exists: pass --overwrite to replace it, or another --out")
    parts = PredictionParts(out)
    job = PredictionJob(run, input, out, samples, method, network, device, seed)
    manifest = job.manifest()
    if (place := ranks()) is not None:
        if workers > 1:
            raise ValueError(f"torchrun starts the processes already, got --workers {workers}: leave it out")
        count = total_over_ranks(place[0], lambda: parts.begin(manifest, overwrite), predict_share(job, *place))
        if place[0] == 0:
            _finish(parts, input, count)
        return
    if done := parts.begin(manifest, overwrite):
        print(f"going on after {done} finished parts in {parts.folder}")
    count = 0
    try:
        share = predict_share(job) if workers == 1 else predict_in_workers(job, workers)
        bar = progress_bar("predicting", None, lambda done, speed: f"{done:,} rows, {speed:,.0f} rows/s")
        with bar as advance, closing(share):  # closed: no worker writes after the block
            for rows in share:
                advance(rows)
                count += rows
        _finish(parts, input, count)
    except BaseException as error:
        if isinstance(error, ValueError) or not parts.finished():  # of an input that must change
            parts.discard()
            raise
        kept = f"{len(parts.finished())} finished parts are kept in {parts.folder}"
        if isinstance(error, KeyboardInterrupt):
            print(f"\nstopped; {kept}. Give the same command again to go on", file=sys.stderr)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OSError(
                f"no space is left for {out}, which takes twice its size while it is written; {kept}. Make room and "
                "give the same command again to go on"
            ) from error
        raise


def _finish(parts: PredictionParts, input: Path, count: int) -> None:
    if not count:
        parts.discard()
        raise ValueError(f"{input} has no rows: there is nothing to predict")
    parts.join()
    print(f"{parts.out}: {count} rows")
