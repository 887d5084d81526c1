"""The perceptron on MNIST: figure 6 and table 2.

784-400-400-10, all kernels and biases Bayesian (biases mean-field), N(0, prior_std^2) prior, weight sampling, Adam,
batch 1024, inputs in [-1, 1], the last 10 000 training images held out. Mean-field scales start at `scale` exactly,
where the paper draws them from N(0.01, 0.001). For mean-field and k = 1, 2, 3 under the same budget:

- annealed: KL weight min(1, 100 rate floor(step / 100)); test -ELBO, NLL, accuracy (100 samples), parameters;
- plain: no annealing; signal-to-noise ratio of the scale gradients of the second layer and validation -ELBO at
  steps 1000, 5000 and 9000;
- truncation: the scales of the annealed mean-field network cut to rank 1, 2, 3 after training.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

import bayeslim as bl
from bayeslim.analysis import GradientSNR
from bayeslim.posteriors import KTied, MeanField
from bayeslim.runtime.seeds import seeded
from bayeslim_papers.experiment import Log
from bayeslim_papers.k_tied.part import Part, Splits, made_images
from bayeslim_papers.k_tied.scoring import score

__all__ = ["Mnist"]

WINDOW = 10
"""Batches over which the signal-to-noise ratio is taken."""


@dataclass(frozen=True)
class Mnist(Part):
    """Settings; learning rate and prior are choices from the paper's grids."""

    name: ClassVar[str] = "mnist"
    checkpoints: ClassVar[bool] = False

    sizes: tuple[int, ...] = (784, 400, 400, 10)
    lr: float = 3e-3
    anneal_rate: float = 5e-5
    scale: float = 0.01
    probe_steps: tuple[int, ...] = (1000, 5000, 9000)
    probe_lr: float = 3e-4
    probe_scale: float = 1e-3

    def load(self, root: Path | None, device: str) -> Splits:
        """MNIST scaled to [-1, 1]; the last 10 000 training images are for validation."""
        parts = [bl.data.mnist(split, root=root) for split in ("train", "test")]
        train, test = ((2 * p.x.flatten(1).to(device) - 1, p.y.to(device)) for p in parts)
        return Splits.holding_out(train, test, 10_000)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A small perceptron on patterns of 16 pixels."""
        few: dict[str, Any] = {"epochs": 20, "samples": 20, "seeds": (0,), "probe_steps": (12, 24, 36)}
        small = cls(sizes=(16, 12, 12, 10), batch_size=64, lr=0.02, anneal_rate=1e-4, **few)
        return small, made_images((16,), 10, (320, 100, 200), device)

    def build(self, k: int, scale: float | None = None) -> nn.Module:
        """The network with a k-tied posterior; k = 0 is mean-field."""
        scale = self.scale if scale is None else scale
        posterior = functools.partial(KTied, k=k) if k else MeanField
        return bl.mlp(
            self.sizes,
            posterior=functools.partial(posterior, scale=scale),
            prior=bl.priors.Normal(0.0, self.prior_std),
            estimator=bl.weight_sample,
            bias_posterior=functools.partial(MeanField, scale=scale),
        )

    def training(self, model: nn.Module) -> dict[str, Any]:
        """Classes and the staircase."""
        return {"likelihood": bl.Categorical(), "kl_schedule": bl.schedules.staircase(self.anneal_rate)}

    def fit_(self, model: nn.Module, k: int, seed: int, data: Splits, log: Log) -> dict[str, Any]:
        """Train the network with annealing, and a second one without, which is probed; there are no checkpoints."""
        with seeded(seed):
            self.build(k)  # the probed network's means are drawn after those of the annealed one
            probed = self.build(k, self.probe_scale).to(data.train[0].device)
        sizes: dict[str, Any] = {"batch_size": self.batch_size, "seed": seed, "progress": False}
        bl.fit(model, data.train, epochs=self.epochs, lr=self.lr, **sizes, **self.training(model))
        probe = Probe(self, probed, data)
        epochs = math.ceil(max(self.probe_steps) * self.batch_size / len(data.train[0]))
        bl.fit(probed, data.train, likelihood=bl.Categorical(), epochs=epochs, optimizer=probe.optimizer, **sizes)
        return {"probes": probe.found}


class Probe:
    """Measures a network at some steps of its training: the gradient noise of the batches before, and the bound."""

    def __init__(self, part: Mnist, model: nn.Module, data: Splits) -> None:
        self.part, self.model, self.data = part, model, data
        self.snr = GradientSNR(model, window=WINDOW)
        self.step = 0
        self.found: list[dict[str, Any]] = []

    def optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Adam that is looked at after every step."""
        adam = torch.optim.Adam(groups, self.part.probe_lr, fused=True)
        adam.register_step_post_hook(lambda *_: self.look())
        return adam

    def look(self) -> None:
        """Take note of the gradients of the last step, and at a step that is asked for of everything."""
        self.step += 1
        if any(0 <= probe - self.step < WINDOW for probe in self.part.probe_steps):
            self.snr.update()
        if self.step in self.part.probe_steps:
            self.found.append({"step": self.step} | self.measured())

    def measured(self) -> dict[str, float]:
        """The signal-to-noise ratio of the second layer's scale gradients, and the bound."""
        second, validation = list(self.snr.layers)[1], self.data.validation
        assert validation is not None
        return {
            "snr": self.snr.values("second_moment")[second],
            "snr_median": self.snr.values("second_moment", "median")[second],
            "validation_nelbo": score(self.model, validation, len(self.data.train[0]), 10)["nelbo"],
        }
