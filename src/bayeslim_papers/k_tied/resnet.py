"""The residual network on CIFAR-10: the scales of a mean-field posterior cut to a low rank, tables 3 and 5.

`bl.models.resnet_k_tied`, kernels Bayesian, biases and normalisation point estimates, N(0, 1) prior, flipout, Adam with
learning rate 1e-4, batch 128, images /255 minus the mean image without augmentation, none held out, 700 epochs; KL
weight linear by steps over the first 50.

Means start in N(0, 0.1^2). Standard deviations are softplus(r), r in N(-9, 0.1^2), as in TensorFlow Probability's code
(about 1.2e-4), and never pass softplus(ln 0.2) = 0.182, to which they are set back after every step. The paper's -ELBO
of 122.6 is that of scales at this bound: ln(1 / 0.182) - 0.5 + ... = 1.24 nats for each of 4.9 million weights. A log
scale moves by no more than the learning rate in a step, 7.3 / 1e-4 = 73 000 steps (187 epochs) to the bound: a shorter
run wants a larger learning rate and a shorter ramp, or its -ELBO is larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.layers import BayesLayer
from bayeslim.posteriors import MeanField
from bayeslim.schedules import Schedule
from bayeslim_papers.experiment import SILENT, Log
from bayeslim_papers.k_tied.part import Part, Splits, made_images
from bayeslim_papers.k_tied.scoring import CALIBRATION, METRICS, Metrics

__all__ = ["Resnet", "linear_by_steps", "saved"]

MAX_SCALE = math.log(1.2)
"""softplus(ln 0.2)."""


@dataclass(frozen=True)
class Resnet(Part):
    """Settings."""

    name: ClassVar[str] = "resnet"
    metrics: ClassVar[Metrics] = METRICS | CALIBRATION

    ranks: tuple[int, ...] = (0,)
    batch_size: int = 128
    epochs: int = 700
    lr: float = 1e-4
    prior_std: float = 1.0
    ramp: int = 50
    """Epochs over which the KL weight grows to 1."""
    mean_std: float = 0.1
    raw_scale: float = -9.0
    raw_scale_std: float = 0.1
    precision: str = "float32"
    """Of the products, on CUDA; the weights that flipout draws stay in float32 either way."""
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks != (0,):
            raise ValueError(f"`ranks` of the residual network must be (0,), mean-field, got {self.ranks}")

    def load(self, root: Path | None, device: str) -> Splits:
        """All training images minus their mean."""
        train, test = (bl.data.cifar10(split, root=root) for split in ("train", "test"))
        x, centre = train.x.to(device), train.x.to(device).mean(0)
        held = test.x.to(device) - centre, test.y.to(device)
        return Splits((x - centre, train.y.to(device)), None, held)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A few steps on patterns of two classes."""
        small = cls(cuts=(1, 2), batch_size=8, epochs=5, lr=3e-3, ramp=2, samples=2)
        return small, made_images((3, 32, 32), 2, (24, 8, 16), device)

    def build(self, k: int) -> nn.Module:
        """The mean-field network."""
        model = bl.models.resnet_k_tied()
        with torch.no_grad():
            for layer in model.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    layer.weight.normal_(0.0, self.mean_std)
                    assert layer.bias is not None
                    layer.bias.zero_()
        prior = bl.priors.Normal(0.0, self.prior_std)
        return bl.bayesianize_(model, posterior=self._posterior, prior=prior, estimator=bl.flipout)

    def _posterior(self, init: Tensor) -> MeanField:
        raw = self.raw_scale + self.raw_scale_std * torch.randn_like(init)
        return MeanField(init, scale=F.softplus(raw))

    def training(self, model: nn.Module) -> dict[str, Any]:
        """Classes, the ramp, and Adam, after whose steps the scales are set back to their bound."""
        log_scales = [posterior.log_scale for posterior in mean_fields(model)]

        @torch.no_grad()
        def bound(*_: Any) -> None:
            for log_scale in log_scales:
                log_scale.clamp_(max=math.log(MAX_SCALE))

        def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
            adam = torch.optim.Adam(groups, self.lr, fused=True, capturable=log_scales[0].is_cuda)
            adam.register_step_post_hook(bound)
            return adam

        schedule = linear_by_steps(self.ramp)
        own = {"kl_schedule": schedule, "precision": self.precision, "optimizer": optimizer}
        return {"likelihood": bl.Categorical()} | own

    def parameters(self, model: nn.Module) -> int:
        """Running averages of the batch normalisation included, as in table 5."""
        averages = sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
        return super().parameters(model) + averages

    def measured(self, variant: str, seed: int, data: Splits, log: Log = SILENT) -> dict[str, Any]:
        """What every part measures, and the parameters that tied scales of the same ranks would have."""
        found = super().measured(variant, seed, data, log)
        model = self.build(0)
        tied = {f"rank {rank}": self.parameters(model) - saved(model, rank) for rank in self.cuts}
        return found | {"tied_parameters": tied}


def saved(model: nn.Module, rank: int) -> int:
    """Scale parameters that tying the scales of a mean-field network saves: `mn - rank (m + n)` per kernel of m x n.

    Example:
        >>> saved(bl.mlp([784, 10]), rank=1)
        7046
    """
    shapes = [posterior.loc.flatten(1).shape for posterior in mean_fields(model)]
    return sum(out * fan_in - rank * (out + fan_in) for out, fan_in in shapes)


def mean_fields(model: nn.Module) -> list[MeanField]:
    """The mean-field posteriors of the kernels."""
    layers = [layer for layer in model.modules() if isinstance(layer, BayesLayer)]
    return [layer.weight for layer in layers if isinstance(layer.weight, MeanField)]


def linear_by_steps(ramp: int) -> Schedule:
    """TensorFlow Probability's annealing by optimiser steps: `min(1, step / (ramp * steps_per_epoch))`."""
    return lambda progress: min(1.0, progress.step / (ramp * progress.steps_per_epoch))
