"""Train a network for some epochs by annealed variational inference, as one CUDA graph where there is CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.likelihoods.base import Likelihood
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress, Schedule
from bayeslim.training.checkpoint import RunState
from bayeslim.training.stack import Objective, StackStepper
from bayeslim_papers.k_tied.scoring import Data
from bayeslim_papers.training import Say, check_precision, epochs_left, resumed_, silent

__all__ = ["ForTensorCores", "train"]


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


def train(
    model: nn.Module,
    data: Data,
    *,
    seed: int,
    epochs: int,
    batch_size: int,
    lr: float,
    likelihood: Likelihood,
    annealing: Schedule,
    precision: str = "float32",
    after_step: Callable[[], None] = lambda: None,
    settings: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Train in place by Adam.

    Order and noise of an epoch follow from its number and `seed`, see `epochs_left`.

    Args:
        model: the network.
        data: inputs and labels, on its device.
        seed: of order and noise.
        epochs: passes over the data.
        batch_size: examples per step.
        lr: learning rate.
        likelihood: of the labels.
        annealing: weight of the KL.
        precision: "float32", or "bfloat16" for networks of images on CUDA; elsewhere float32 is used.
        after_step: called after every step, e.g. to bound the scales.
        settings: what else a run that goes on must have in common with the one that stopped.
        folder: for checkpoints; a run that finds one goes on from it.
        say: told now and then how far training is.

    Returns:
        Facts for the record: steps, milliseconds of a step, networks at once (1), precision, last KL weight.

    Raises:
        FloatingPointError: if the network is no longer finite.
        ValueError: if `precision` is not known, or the checkpoint in `folder` is that of another run.

    Example:
        >>> train(model, (x, y), seed=0, epochs=300, batch_size=1024, lr=1e-3, likelihood=bl.Categorical(),
        ...       annealing=bl.schedules.staircase(5e-5))
    """
    check_precision(precision)
    x, y = data
    precision = precision if x.is_cuda else "float32"
    model.train()
    network = ForTensorCores(model, precision == "bfloat16") if x.is_cuda and x.ndim == 4 else model
    # A stack of one, since its whole step, Adam included, is one CUDA graph.
    stepper = StackStepper([Objective(network, likelihood, len(x))], x, y, lr=[lr], vectorised=False)
    shared = dict(settings or {}) | {"epochs": epochs, "batch_size": batch_size, "lr": lr, "precision": precision}
    trained = nn.ModuleList([model]), likelihood, stepper.optimizer
    state = resumed_(RunState(seed, settings=shared), folder, trained, say)
    steps, first, one = -(-len(x) // batch_size), state.epoch, torch.ones((), device=x.device)
    started = time.perf_counter()
    with seeded(0):
        for epoch in epochs_left(state, epochs, folder, trained):
            weights = [annealing(Progress(epoch * steps + step, steps, epochs)) for step in range(steps)]
            betas = torch.tensor(weights, device=x.device).split(1)
            for rows, beta in zip(torch.randperm(len(x)).to(x.device).split(batch_size), betas, strict=True):
                stepper.step(rows[None], beta, one)
                after_step()
            if not bool(stepper.stack.finite()):
                raise FloatingPointError(f"the network is no longer finite after epoch {epoch}: choose a smaller `lr`")
            if (epoch + 1) % max(1, epochs // 10) == 0:
                loss, seconds = stepper.epoch_summary()[0]["energy"], time.perf_counter() - started
                say(f"epoch {epoch + 1} of {epochs}: loss {loss:.4g}, KL weight {weights[-1]:.3g}, {seconds:.0f} s")
    done = max(1, (epochs - first) * steps)
    facts = {
        "steps": epochs * steps,
        "step_milliseconds": 1e3 * (time.perf_counter() - started) / done,
        "networks_at_once": 1,
        "precision": precision,
        "kl_weight": annealing(Progress(epochs * steps - 1, steps, epochs)),
    }
    stepper.release_()
    return facts
