"""Who predicts which part: one process, several workers, or the ranks of torchrun."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

from bayeslim.cli.answers import answers
from bayeslim.cli.overflow import refuse_overflow
from bayeslim.cli.prediction_parts import PredictionParts
from bayeslim.data.image_inputs import image_files
from bayeslim.named_models import resolved_device
from bayeslim.predictive import predict
from bayeslim.runs import Network, Run
from bayeslim.runtime.seeds import derived_seed

__all__ = ["PredictionJob", "predict_in_workers", "predict_share", "ranks", "total_over_ranks"]

ROWS = 8192
"""Rows of a part, at most."""


@dataclass(frozen=True)
class PredictionJob:
    """What to predict, by which network, and how; see `bayeslim.cli.predict.command`."""

    run: Path
    input: Path
    out: Path
    samples: int
    method: Literal["sample", "moments", "mean"]
    network: Network
    device: str
    seed: int

    def manifest(self) -> dict[str, str | int]:
        """All that the answers follow from, by names for messages."""
        if not self.input.exists():
            raise FileNotFoundError(f"there is no file {self.input}")
        run = Run(self.run)
        pruned = self.network == "pruned" or (self.network == "auto" and run.has_pruned())
        digest = hashlib.sha256()
        for name in ("config.toml", "preprocessing.json", f"{'pruned' if pruned else 'model'}.safetensors"):
            digest.update((self.run / name).read_bytes())
        files = image_files(self.input) if self.input.is_dir() else [self.input]
        names = "\n".join(file.name for file in files)
        return {
            "network": digest.hexdigest()[:16],
            "input": self.input.name
            if files == [self.input]
            else hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()[:16],
            "input size": sum(file.stat().st_size for file in files),
            "input time": max(file.stat().st_mtime_ns for file in files),
            "samples": self.samples,
            "method": self.method,
            "seed": self.seed,
            "device": resolved_device(self.device).type,
            "rows of a part": ROWS,
            "bayeslim": version("bayeslim"),
            "torch": torch.__version__,
        }


def predict_share(job: PredictionJob, share: int = 0, shares: int = 1) -> Generator[int]:
    """Predict the parts `i` with `i mod shares == share` that are not finished; yield the rows of each.

    Part `i` draws from a seed that depends on (`job.seed`, `i`) alone: who predicts it makes no difference.

    Args:
        job: what to predict; its parts have begun.
        share: whose parts, from 0.
        shares: how many there are.

    Raises:
        ValueError: if a row cannot be used, or the network overflows in it.

    Example:
        >>> sum(predict_share(job))
        20000
    """
    run, device, parts = Run(job.run), resolved_device(job.device), PredictionParts(job.out)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", share)) % torch.cuda.device_count())
    model, target = run.model(job.network).to(device), run.preprocessing.target
    before = 0
    for index, (count, prepare) in enumerate(run.preprocessing.pieces(job.input, ROWS)):
        before += count
        if index % shares != share:
            continue
        if not parts.has(index):
            x = prepare()
            prediction = predict(
                model,
                x,
                samples=job.samples,
                method=job.method,
                keep_samples=job.method == "sample" and target.classes is None,  # for quantiles of numbers
                seed=derived_seed(job.seed, index),
            )
            found = answers(prediction, target)
            refuse_overflow(found, x, run.preprocessing.inputs, before - count)
            parts.write(index, found)
        yield count


def predict_in_workers(job: PredictionJob, workers: int) -> Generator[int]:
    """Predict all parts in several processes, which share the threads of this one; yield the rows of each part.

    Args:
        job: what to predict; its parts have begun.
        workers: processes, each with a network of its own and one part in memory.

    Raises:
        ChildProcessError: if a process dies.
        Exception: whatever a process raises; the others are ended then.

    Example:
        >>> sum(predict_in_workers(job, workers=2))
        20000
    """
    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    processes: dict[Any, Any] = {}
    # Ctrl-C reaches the whole group. Workers are born deaf to it: this process ends them.
    listening = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        for share in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_worker, args=(job, share, workers, threads, sender), daemon=True)
            process.start()
            sender.close()
            processes[receiver] = process
        signal.signal(signal.SIGINT, listening)
        running = list(processes)
        while running:
            for receiver in wait(running):
                message = _received(receiver, processes)
                if isinstance(message, Exception):
                    raise message
                if message is None:
                    running.remove(receiver)
                else:
                    yield message
    finally:
        signal.signal(signal.SIGINT, listening)
        for process in processes.values():
            process.terminate()
            process.join()


def ranks() -> tuple[int, int] | None:
    """The rank of this process and how many there are, if torchrun started several."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    return (int(os.environ["RANK"]), world) if world > 1 and "RANK" in os.environ else None


def total_over_ranks(rank: int, begin: Callable[[], object], share: Iterable[int]) -> int:
    """Let rank 0 begin, every rank do its share, and wait for all of them.

    Args:
        rank: of this process.
        begin: called on rank 0 before any share.
        share: yields rows as they are predicted.

    Returns:
        The rows of all ranks.
    """
    torch.distributed.init_process_group("gloo", timeout=timedelta(days=30))
    try:
        if rank == 0:
            begin()
        torch.distributed.barrier()
        total = torch.tensor(sum(share))
        torch.distributed.all_reduce(total)
        return int(total)
    finally:
        torch.distributed.destroy_process_group()


def _received(receiver: Any, processes: dict[Any, Any]) -> int | Exception | None:
    try:
        return receiver.recv()
    except EOFError:
        process = processes[receiver]
        process.join()
        raise ChildProcessError(
            f"a worker was ended from outside (exit code {process.exitcode}; for want of memory?): the finished parts "
            "are kept; give the same command again, perhaps with fewer --workers"
        ) from None


def _worker(job: PredictionJob, share: int, shares: int, threads: int, sender: Connection) -> None:
    torch.set_num_threads(threads)
    try:
        for rows in predict_share(job, share, shares):
            sender.send(rows)
        sender.send(None)
    except BrokenPipeError:
        return  # the first process is gone
    except Exception as error:
        sender.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """The error, or its text where it cannot be sent."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
