"""Train one network by `bl.fit`, with checkpoints, and what a record says of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import bayeslim as bl
from bayeslim.predictive.inputs import device_of
from bayeslim.schedules import Progress
from bayeslim.storage import write_atomically
from bayeslim_papers.experiment import SILENT, Log

__all__ = ["PRECISIONS", "EpochHook", "in_percent", "train"]

PRECISIONS = ("float32", "bfloat16")
"""Of the products on CUDA; parameters, noise, KL and optimiser are float32 either way, and so is everything else."""
EpochHook = Callable[[nn.Module, torch.optim.Optimizer, Progress], None]


def train(
    model: nn.Module,
    data: Any,
    *,
    epochs: int,
    batch_size: int,
    precision: str = "float32",
    graph: bool = True,
    after_epoch: EpochHook = lambda model, optimizer, progress: None,
    log: Log = SILENT,
    **options: Any,
) -> dict[str, Any]:
    """Train in place by `bl.fit`.

    Args:
        model: the network.
        data: see `bl.fit`.
        epochs: passes over the data.
        batch_size: examples per step; a loader has its own.
        precision: one of `PRECISIONS`.
        graph: replay every step as a CUDA graph on CUDA, which the optimiser must allow.
        after_epoch: see `bl.fit`.
        log: told now and then how far training is; a run that finds a checkpoint in its folder goes on from it.
        **options: of `bl.fit`.

    Returns:
        Facts for the record; seconds are those of an epoch (median) and of all, peak memory is in bytes (CUDA; weights,
        gradients, optimiser, and all that steps and `after_epoch` need), and the weight of the KL is the last one.
    """
    device = device_of(model)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    own = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    before = torch.cuda.memory_allocated(device) - own if cuda else 0
    file = log.folder and log.folder / "seconds.json"
    seconds: list[float] = json.loads(file.read_text()) if file and file.exists() else []
    started = time.perf_counter()

    def timed(network: nn.Module, optimizer: torch.optim.Optimizer, now: Progress) -> None:
        nonlocal started
        if cuda:
            torch.cuda.synchronize(device)
        seconds[now.epoch :] = [time.perf_counter() - started]
        if file:
            write_atomically(file, json.dumps(seconds).encode())
        if (now.epoch + 1) % max(1, epochs // 10) == 0:
            log.say(f"epoch {now.epoch + 1} of {epochs}: {seconds[-1]:.1f} s")
        after_epoch(network, optimizer, now)
        started = time.perf_counter()

    history = bl.fit(
        model,
        data,
        epochs=epochs,
        batch_size=batch_size,
        autocast=torch.bfloat16 if cuda and precision == "bfloat16" else None,
        cuda_graph=graph and cuda,
        after_epoch=timed,
        checkpoint=log.folder,
        resume=True,
        keep=1,
        progress=False,
        **options,
    )
    batches = len(data) if isinstance(data, DataLoader) else -(-len(data[1]) // batch_size)
    return {
        "epochs": epochs,
        "steps": epochs * batches,
        "losses": history["energy"],
        "epoch_seconds": median(seconds),
        "seconds": sum(seconds),
        "peak_bytes": torch.cuda.max_memory_allocated(device) - before if cuda else None,
        "precision": precision if cuda else "float32",
        "cuda_graph": graph and cuda,
        "kl_weight": history.last["beta"],
    }


def in_percent(scores: Mapping[str, float]) -> dict[str, float]:
    """Of what `bl.evaluate` says of a classifier: accuracy in percent, NLL in nats and calibration error."""
    return {"accuracy": 100 * scores["accuracy"], "nll": scores["nll"], "ece": scores["ece"]}
