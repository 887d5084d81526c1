"""The convolutional network on CIFAR-100 (figure 6 and table 2), and on CIFAR-10, which the paper does not have.

conv 32, conv 64, fc 512, fc classes, all kernels and biases Bayesian, k-tied in the two dense kernels alone, the rest
mean-field; N(0, prior_std^2) prior, weight sampling, Adam, batch 1024, inputs in [0, 1] without augmentation, the last
10 000 training images held out. KL weight as in the MNIST part: 0.6 after 300 epochs. Truncation cuts the scales of
all four kernels, convolutions as (out, fan_in). Mean-field scales start as in the MNIST part.

Learning rate and prior are to be chosen on the validation scores from the paper's grids, 1e-4 to 3e-3 and 0.2 or 0.3.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

import bayeslim as bl
from bayeslim.posteriors import KTied, MeanField
from bayeslim_papers.k_tied.part import Part, Splits, made_images
from bayeslim_papers.sparse_vd.recipes import fresh

__all__ = ["Cifar10", "Cifar100"]

DENSE = ("7", "9")
"""The layers whose kernels are tied."""


@dataclass(frozen=True)
class Cifar100(Part):
    """Settings."""

    name: ClassVar[str] = "cifar100"
    classes: ClassVar[int] = 100

    anneal_rate: float = 5e-5
    scale: float = 0.01
    precision: str = "bfloat16"
    """On CUDA; rounded weights are wrong by 0.2 %, far less than the noise."""

    def load(self, root: Path | None, device: str) -> Splits:
        """Images in [0, 1]; the last 10 000 training images are for validation."""
        load = {"cifar10": bl.data.cifar10, "cifar100": bl.data.cifar100}[self.name]
        train, test = (
            (p.x.to(device), p.y.to(device)) for p in (load(split, root=root) for split in ("train", "test"))
        )
        return Splits.holding_out(train, test, 10_000)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A few steps on patterns of four classes."""
        small = cls(ranks=(0, 2), cuts=(1, 2), batch_size=16, epochs=4, samples=3, seeds=(0,))
        return small, made_images((3, 32, 32), 4, (48, 16, 32), device)

    def build(self, k: int) -> nn.Module:
        """The network with k-tied dense kernels; k = 0 is mean-field."""
        model = fresh(bl.models.cnn_k_tied(self.classes), "he")
        mean_field = functools.partial(MeanField, scale=self.scale)
        tied = functools.partial(KTied, k=k, scale=self.scale) if k else mean_field
        return bl.bayesianize_(
            model,
            posterior=mean_field,
            prior=bl.priors.Normal(0.0, self.prior_std),
            estimator=bl.weight_sample,
            bias_posterior=mean_field,
            overrides={name: {"posterior": tied} for name in DENSE},
        )

    def training(self, model: nn.Module) -> dict[str, Any]:
        """Classes and the staircase."""
        annealing = bl.schedules.staircase(self.anneal_rate)
        return {"likelihood": bl.Categorical(), "kl_schedule": annealing, "precision": self.precision}


@dataclass(frozen=True)
class Cifar10(Cifar100):
    """Settings with ten classes."""

    name: ClassVar[str] = "cifar10"
    classes: ClassVar[int] = 10
