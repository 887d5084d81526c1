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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import GradientSNR
from bayeslim.posteriors import KTied, MeanField
from bayeslim.runtime.seeds import derived_seed, seeded
from bayeslim.schedules import Progress
from bayeslim.training.step import Stepper
from bayeslim_papers.k_tied.part import Part, Splits, made_images
from bayeslim_papers.k_tied.scoring import Data, score
from bayeslim_papers.training import Say

__all__ = ["Mnist"]

WINDOW = 10
"""Batches over which the signal-to-noise ratio is taken."""


@dataclass(frozen=True)
class Mnist(Part):
    """Settings; learning rate and prior are choices from the paper's grids."""

    name: ClassVar[str] = "mnist"

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
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """A small perceptron on patterns of 16 pixels."""
        small = cls(
            sizes=(16, 12, 12, 10),
            batch_size=64,
            epochs=20,
            lr=0.02,
            anneal_rate=1e-4,
            probe_steps=(12, 24, 36),
            samples=20,
            seeds=(0,),
        )
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
        return {"likelihood": bl.Categorical(), "annealing": bl.schedules.staircase(self.anneal_rate)}

    def fit_(self, model: nn.Module, k: int, seed: int, data: Splits, folder: Path | None, say: Say) -> dict[str, Any]:
        """Train the network with annealing, and a second one without, which is probed; there are no checkpoints."""
        steps = self.epochs * -(-len(data.train[0]) // self.batch_size)
        with seeded(seed):
            self.build(k)  # the probed network's means are drawn after those of the annealed one
            probed = self.build(k, self.probe_scale).to(data.device)
        self._train(model, data, seed, steps, anneal=True)
        return {"probes": self._train(probed, data, seed, max(self.probe_steps), anneal=False)}

    def _train(self, model: nn.Module, data: Splits, seed: int, steps: int, anneal: bool) -> list[dict[str, Any]]:
        """Train for `steps` steps; without annealing, measure at the probe steps on the way."""
        (x, y), validation = data.train, data.validation
        assert validation is not None
        steps_per_epoch = -(-len(x) // self.batch_size)
        own = self.training(model)
        optimizer = torch.optim.Adam(bl.param_groups(model), self.lr if anneal else self.probe_lr, fused=True)
        stepper = Stepper(model, own["likelihood"], optimizer, num_data=len(x))
        weight = own["annealing"] if anneal else bl.schedules.constant()
        snr = GradientSNR(model, window=WINDOW)
        order: tuple[Tensor, ...] = ()
        probes: list[dict[str, Any]] = []
        with seeded(derived_seed(seed, int(anneal))):
            for step in range(steps):
                if step % steps_per_epoch == 0:
                    order = torch.randperm(len(x), device=x.device).split(self.batch_size)
                    stepper.seen.clear()
                index = order[step % steps_per_epoch]
                stepper.step([(x[index], y[index])], weight(Progress(step, steps_per_epoch, 1)), 1.0)
                if not anneal and any(0 <= probe - 1 - step < WINDOW for probe in self.probe_steps):
                    snr.update()
                if not anneal and step + 1 in self.probe_steps:
                    probes.append({"step": step + 1} | self._probed(model, snr, validation, len(x)))
        return probes

    def _probed(self, model: nn.Module, snr: GradientSNR, validation: Data, num_data: int) -> dict[str, float]:
        """The signal-to-noise ratio of the second layer's scale gradients, and the bound."""
        second = list(snr.layers)[1]
        return {
            "snr": snr.values("second_moment")[second],
            "snr_median": snr.values("second_moment", "median")[second],
            "validation_nelbo": score(model, validation, num_data, 10)["nelbo"],
        }
