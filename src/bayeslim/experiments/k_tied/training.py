"""Train networks for some epochs by annealed variational inference, as one CUDA graph where there is CUDA."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.experiments.k_tied.scoring import Data
from bayeslim.likelihoods.base import Likelihood
from bayeslim.randomness import derived_seed, seeded
from bayeslim.schedules import Progress, Schedule
from bayeslim.training.checkpoint import RunState, checkpoint_file, load_checkpoint_, save_checkpoint
from bayeslim.training.stack import Objective, StackStepper

__all__ = ["PRECISIONS", "ForTensorCores", "Say", "silent", "train"]

Say = Callable[[str], None]
"""What is told how far training is."""

PRECISIONS = ("float32", "bfloat16")
"""Of the products; parameters, noise, KL and optimiser are float32 either way."""
CHECKPOINT_SECONDS = 30.0
"""Time between checkpoints, at least."""


class ForTensorCores(nn.Module):
    """A network of images whose input comes channels last, and whose products are in bfloat16 if asked.

    Args:
        model: maps images (batch, channels, height, width) to logits.
        autocast: products in bfloat16; else float32, which for convolutions on CUDA is TF32.

    Example:
        >>> ForTensorCores(model, autocast=True)(images).dtype
        torch.float32
    """

    def __init__(self, model: nn.Module, autocast: bool) -> None:
        super().__init__()
        self.model, self.autocast = model, autocast

    def forward(self, x: Tensor) -> Tensor:
        """The network's output, in float32."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.autocast):
            return self.model(x.contiguous(memory_format=torch.channels_last)).float()


def silent(text: str) -> None:
    """Tell nobody."""


def train(
    models: Sequence[nn.Module],
    data: Data,
    *,
    seeds: Sequence[int],
    epochs: int,
    batch_size: int,
    lr: float,
    likelihood: Likelihood,
    annealing: Schedule,
    precision: str = "float32",
    vectorised: bool | None = None,
    after_step: Callable[[], None] = lambda: None,
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Train networks of one architecture side by side, each by its own Adam on its own order of the data.

    Order and noise of epoch `e` follow from the seeds and `e` alone, so that a run that goes on from a checkpoint ends
    as one that never stopped.

    Args:
        models: trained in place.
        data: inputs and labels, on the networks' device.
        seeds: one per network.
        epochs: passes over the data.
        batch_size: examples per step.
        lr: learning rate.
        likelihood: of the labels.
        annealing: weight of the KL.
        precision: "float32", or "bfloat16" for networks of images on CUDA; elsewhere float32 is used.
        vectorised: networks all at once or one after the other, see `Stack`.
        after_step: called after every step, e.g. to bound the scales.
        settings: what else a run that goes on must have in common with the one that stopped.
        folder: for checkpoints; a run that finds one goes on from it.
        say: told now and then how far training is.

    Returns:
        Facts for the record: steps, milliseconds of a step, networks at once, precision, last KL weight.

    Raises:
        FloatingPointError: if a network is no longer finite.
        ValueError: if `precision` is not known, or the checkpoint in `folder` is that of another run.

    Example:
        >>> train([model], (x, y), seeds=[0], epochs=300, batch_size=1024, lr=1e-3, likelihood=bl.Categorical(),
        ...       annealing=bl.schedules.staircase(5e-5))
    """
    if precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    x, y = data
    precision = precision if x.is_cuda else "float32"
    for model in models:
        model.train()
    images = x.is_cuda and x.ndim == 4
    members = [ForTensorCores(model, precision == "bfloat16") if images else model for model in models]
    stepper = StackStepper(
        [Objective(member, likelihood, len(x)) for member in members],
        x,
        y,
        lr=[lr] * len(models),
        vectorised=vectorised,
    )
    shared = dict(settings or {}) | {"seeds": list(seeds), "epochs": epochs, "batch_size": batch_size, "lr": lr}
    state = RunState(seed=seeds[0], settings=shared | {"precision": precision})
    parts = nn.ModuleList(models), likelihood, stepper.optimizer
    if folder is not None and checkpoint_file(folder).exists():
        state = load_checkpoint_(folder, *parts, state.settings)
        say(f"going on after epoch {state.epoch}")
    steps, first, one = -(-len(x) // batch_size), state.epoch, torch.ones((), device=x.device)
    started = saved = time.perf_counter()
    with seeded(0), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)  # a loop inside torch.vmap
        for epoch in range(first, epochs):
            weights = [annealing(Progress(epoch * steps + step, steps, epochs)) for step in range(steps)]
            betas = torch.tensor(weights, device=x.device)[:, None].expand(-1, len(models))
            for step, rows in enumerate(_orders(seeds, epoch, len(x)).to(x.device).split(batch_size, 1)):
                stepper.step(rows, betas[step], one)
                after_step()
            if not bool(stepper.stack.finite().all()):
                raise FloatingPointError(f"a network is no longer finite after epoch {epoch}: choose a smaller `lr`")
            now = time.perf_counter()
            state.epoch = epoch + 1
            if (epoch + 1) % max(1, epochs // 10) == 0:
                energy = ", ".join(f"{summary['energy']:.4g}" for summary in stepper.epoch_summary())
                say(f"epoch {epoch + 1} of {epochs}: loss {energy}, KL weight {weights[-1]:.3g}, {now - started:.0f} s")
            if folder is not None and now - saved > CHECKPOINT_SECONDS:
                save_checkpoint(folder, *parts, state)
                saved = time.perf_counter()
    done = max(1, (epochs - first) * steps)
    facts = {
        "steps": epochs * steps,
        "step_milliseconds": 1e3 * (time.perf_counter() - started) / done,
        "networks_at_once": len(models),
        "precision": precision,
        "kl_weight": annealing(Progress(epochs * steps - 1, steps, epochs)),
    }
    stepper.release_()
    return facts


def _orders(seeds: Sequence[int], epoch: int, count: int) -> Tensor:
    """(networks, count): the order of each network's examples; the noise then follows the last seed."""
    orders: list[Tensor] = []
    for seed in seeds:
        torch.manual_seed(derived_seed(seed, epoch))
        orders.append(torch.randperm(count))
    return torch.stack(orders)
