"""What the trainings of experiments share: precisions, and epochs from which an interrupted training goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from bayeslim.likelihoods.base import Likelihood
from bayeslim.runtime.seeds import derived_seed
from bayeslim.training.checkpoint import RunState, checkpoint_file, load_checkpoint_, save_checkpoint

__all__ = ["PRECISIONS", "Say", "Trained", "check_precision", "epochs_left", "resumed_", "silent"]

Say = Callable[[str], None]
"""What is told how far an experiment is."""
Trained = tuple[nn.Module, Likelihood, torch.optim.Optimizer]
"""What a checkpoint holds besides the state of the run."""
PRECISIONS = ("float32", "bfloat16")
"""Of the products; parameters, noise, KL and optimiser are float32 either way."""
CHECKPOINT_SECONDS = 30.0
"""Time between checkpoints, at least."""


def silent(text: str) -> None:
    """Tell nobody."""


def check_precision(precision: str) -> None:
    """Raise ValueError unless `precision` is one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}, got {precision!r}")


def resumed_(state: RunState, folder: Path | None, trained: Trained, say: Say) -> RunState:
    """The state of the training that was interrupted in `folder`, which `trained` is set to; else `state` as it is.

    Args:
        state: of a training that begins.
        folder: for checkpoints.
        trained: network, likelihood and optimiser.
        say: told after which epoch the training goes on.

    Raises:
        ValueError: if the checkpoint in `folder` is that of another run.

    Example:
        >>> state = resumed_(RunState(seed=0), folder, trained, print)
    """
    if folder is None or not checkpoint_file(folder).exists():
        return state
    state = load_checkpoint_(folder, *trained, state.settings | {"seed": state.seed})
    say(f"going on after epoch {state.epoch}")
    return state


def epochs_left(state: RunState, epochs: int, folder: Path | None, trained: Trained) -> Iterator[int]:
    """The epochs still to do, with a checkpoint now and then after one.

    Torch's random state at the start of epoch `e` follows from (seed, `e`) alone, so that a training that goes on from
    a checkpoint ends as one that never stopped.

    Args:
        state: of the training; its epoch is counted here.
        epochs: of the whole training.
        folder: for checkpoints; None writes none.
        trained: network, likelihood and optimiser.

    Example:
        >>> for epoch in epochs_left(state, 300, folder, trained):
        ...     order = torch.randperm(60_000)
    """
    saved = time.perf_counter()
    for epoch in range(state.epoch, epochs):
        torch.manual_seed(derived_seed(state.seed, epoch))
        yield epoch
        state.epoch = epoch + 1
        if folder is not None and time.perf_counter() - saved > CHECKPOINT_SECONDS:
            save_checkpoint(folder, *trained, state, keep=1)
            saved = time.perf_counter()
