"""Training runs that were stopped after some epochs; the tests resume them as they were started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim import CVAdam, SparsityTarget, SpikeAndSlab
from bayeslim.posteriors import MeanField
from frozen.answers import recorded

__all__ = ["STOPPED_AFTER", "TRAININGS", "Stopped", "Training"]

STOPPED_AFTER, EPOCHS = 3, 5


class Stopped(Exception):
    """Stands for whatever ends a run."""


@dataclass
class Training:
    """How a run was started.

    Without noise, and with one batch per epoch, it ends in the recorded network on every machine, to `tolerance`.
    """

    network: Callable[[], nn.Module]
    likelihood: Callable[[], bl.likelihoods.Likelihood]
    options: dict[str, Any] = field(default_factory=dict)
    pruned: bool = False
    noisy: bool = False
    tolerance: float = 1e-3

    def fit(self, checkpoint: Path | None, stop: bool = False, epochs: int = EPOCHS) -> tuple[nn.Module, bl.History]:
        """Train from the beginning, or from the checkpoint if there is one; `Stopped` in the epoch after the third."""
        torch.manual_seed(0)
        model = self.network()
        pruner = spike_and_slab(model) if self.pruned else None
        options = {"batch_size": 64, "lr": 0.02, "seed": 1, "progress": False} | self.options
        if pruner is not None:
            options["optimizer"] = lambda groups: pruner.attach(
                CVAdam(groups, num_data=24, lr=0.3, weight_decay=5e-4, temperature=0.0, seed=0)
            )
        if "patience" in options:
            options["validation"] = self.data("vectors")

        def after_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, progress: bl.schedules.Progress) -> None:
            if stop and progress.epoch == STOPPED_AFTER:
                raise Stopped
            if pruner is not None:
                pruner.after_epoch()

        history = bl.fit(
            model,
            self.data("rows"),
            likelihood=self.likelihood(),
            epochs=epochs,
            **options,
            after_epoch=after_epoch,
            checkpoint=checkpoint,
            resume=checkpoint is not None,
        )
        return model, history

    def data(self, name: str) -> tuple[Tensor, Tensor]:
        """Inputs, and classes or two numbers that depend on them."""
        x = torch.tensor(recorded()["inputs"][name])
        if isinstance(self.likelihood(), bl.Categorical):
            return x, (x.sum(1) > 0).long()
        return x, torch.stack([x[:, 0] - 0.5 * x[:, 1], x[:, 2]], 1)


def without_noise(**options: Any) -> nn.Sequential:
    """A perceptron that trains its means by the data and its scales by the KL alone."""
    return bl.mlp([3, 6, 2], method="graves", activations="tanh", estimator=bl.mean_only, **options)


def half() -> nn.Sequential:
    """Such a perceptron, half of its weights pruned."""
    model = without_noise()
    bl.prune_(model, amount=0.5)
    return model


def convolutional() -> nn.Module:
    """A small convolutional network with noise."""
    plain = nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2))
    return bl.bayesianize_(plain, prior=bl.priors.ARD())


def spike_and_slab(model: nn.Module) -> SpikeAndSlab:
    """Half of the weights by the last epoch, whatever the unit of thresholds is."""
    target = SparsityTarget(0.5, by_epoch=EPOCHS)
    return SpikeAndSlab(model, group="weight", hard_threshold=0.0, soft_threshold=0.0, warm_up=1, target=target)


TRAININGS = {
    "adam": Training(
        partial(without_noise, bias_posterior=MeanField),
        partial(bl.likelihoods.Gaussian, 0.5, learn_noise=True),
        {
            **{"scale_lr": 0.05, "clip_norm": 5.0, "patience": 10, "pretrain_epochs": 1},
            **{"kl_schedule": bl.schedules.warmup_linear(1, 2), "lr_schedule": bl.schedules.constant_then_linear(0.5)},
        },
    ),
    "masks": Training(half, bl.Categorical),
    "momentum": Training(without_noise, bl.Categorical, {"optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9)}),
    "spike_and_slab": Training(lambda: bl.models.mlp([3, 6, 2]), bl.Categorical, pruned=True),
    # A step of a scale's logarithm is rounded to 0.03 in bfloat16, and is not where scales are kept in float32.
    "bfloat16": Training(lambda: without_noise().bfloat16(), bl.Categorical, tolerance=0.1),
    "batches": Training(convolutional, bl.Categorical, {"batch_size": 8, "samples": 2, "lr": 1e-3}, noisy=True),
}
"""By the name of the checkpoint's folder."""
