"""CV-Adam and pruning on the way (arXiv 2210.12957) with ResNet-18 on CIFAR-10: the paper's table 1.

    bayeslim reproduce samplers-cifar --device cuda --out results/samplers_cifar.json

ResNet-18 with a 3x3 stem, random crops and mirror images, the same epochs for all methods:

- cvadam: CV-Adam at the cold temperature, cosine cycles, snapshots after the last three epochs of each: with four
  cycles twelve networks, whose probabilities are averaged;
- dfp-70, -80, -90: the same with spike-and-slab masks over single weights, which reach 70, 80 and 90 % before the last
  cycle and only grow; its three snapshots share one mask. dpf-70, -80, -90: with feedback, weights may come back;
- sgd: momentum 0.9, one cosine; sgd-snapshots: SGD with the cycles and snapshots of cvadam, which tells what the noise
  and the learned scales add.

The paper's batches are of 64 images and take 200 epochs. Larger batches want a learning rate in proportion. Its
settings for pruned networks are not published; the masks' are those of the MNIST experiment. Results are written after
every network, and a run with the same --out and --checkpoints goes on where it stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import CVAdam
from bayeslim.optim.groups import prunable_layers
from bayeslim.optim.sparsity_target import SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress, cosine_cycles, sampling_epochs
from bayeslim_papers.images.command import command
from bayeslim_papers.images.experiment import ImageExperiment
from bayeslim_papers.images.images import Splits, load_cifar10, made_images
from bayeslim_papers.images.scoring import Collected, predicted, scores
from bayeslim_papers.images.training import train
from bayeslim_papers.samplers.cifar_table import table
from bayeslim_papers.training import Say, silent

__all__ = ["METHODS", "PAPER", "TOLERANCE", "Method", "Samplers", "main"]

PAPER: dict[str, Any] = {
    "accuracy %": {
        "sgd": 95.0,
        "cvadam": 95.5,
        "dfp-70": 94.7,
        "dfp-80": 94.5,
        "dfp-90": 93.9,
        "dpf-70": 94.8,
        "dpf-80": 94.5,
        "dpf-90": 93.8,
    },
    "accuracy % of others": {
        "cSGLD": 95.7,
        "SM, 70, 80, 90 % sparse": [92.8, 91.1, 89.7],
        "DSR, 70, 80, 90 % sparse": [93.1, 91.2, 90.0],
    },
}
"""Table 1, ResNet18; `sgd` is its baseline."""
TOLERANCE = {"accuracy %": 0.5}
"""Of a run of 200 epochs: 2.5 standard errors of an accuracy near 95 % on 10 000 images."""


@dataclass(frozen=True)
class Method:
    """How a network is trained."""

    sampler: Literal["sgd", "cvadam"] = "cvadam"
    cyclical: bool = True
    """Whether it goes through cycles and gives snapshots."""
    sparsity: float | None = None
    feedback: bool = False


METHODS: dict[str, Method] = {
    "cvadam": Method(),
    **{f"dfp-{percent}": Method(sparsity=percent / 100) for percent in (70, 80, 90)},
    **{f"dpf-{percent}": Method(sparsity=percent / 100, feedback=True) for percent in (70, 80, 90)},
    "sgd": Method("sgd", cyclical=False),
    "sgd-snapshots": Method("sgd"),
}
"""Method by name."""


@dataclass(frozen=True)
class Samplers(ImageExperiment):
    """Settings."""

    name: ClassVar[str] = "samplers-cifar"
    paper: ClassVar[dict[str, Any]] = PAPER
    tolerance: ClassVar[dict[str, float]] = TOLERANCE
    settings: ClassVar[tuple[str, ...]] = ("lr", "sgd_lr", "cycles", "per_cycle", "width")
    known: ClassVar[tuple[str, ...]] = tuple(METHODS)
    burn_in: ClassVar[int] = 0
    """Cycles without snapshots."""

    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = (0,)
    epochs: int = 200
    batch_size: int = 64
    precision: str = "bfloat16"
    width: int = 64
    """Channels of the first stage."""
    lr: float = 1.0
    """Of CV-Adam."""
    sgd_lr: float = 0.05
    """0.1 for batches of 128."""
    weight_decay: float = 5e-4
    temperature: Literal["posterior", "cold"] = "cold"
    cycles: int = 4
    per_cycle: int = 3
    spike_decay: float = 1e-3
    soft_threshold: float = 1e-4

    @property
    def outputs(self) -> int:
        """Classes of the network."""
        return 10

    def network(self) -> nn.Module:
        """The plain network."""
        return bl.models.resnet18(self.outputs, self.width)

    @property
    def last_cycle(self) -> int:
        """Epochs before the last cycle (where `cycles` divides them): the masks are final after them."""
        return self.epochs - math.ceil(self.epochs / self.cycles)

    def load(self, root: Path | None, device: str) -> Splits:
        """CIFAR-10, cropped and mirrored."""
        return load_cifar10(root, device)

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes."""
        small = cls(epochs=6, batch_size=16, width=2, lr=0.3, cycles=2, per_cycle=2)
        return small, made_images(8, 3, (128, 64), device)

    def measured(
        self, method: str, seed: int, data: Splits, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        """Scores of all snapshots together, of each, and of the last network; sparsity of its kernels."""
        plan, (x, y) = METHODS[method], data.test.plain()
        with seeded(seed):
            model = self.network().to(x.device)
        optimizer = self.optimizer(plan, model, len(data.train), seed)
        pruner = None if plan.sparsity is None else self.pruner(plan, model)
        if pruner is not None:
            pruner.attach(optimizer)
        cycles = self.cycles if plan.cyclical else 1
        burn_in = self.burn_in * self.epochs // self.cycles if plan.cyclical else 0
        first = burn_in if pruner is None else self.last_cycle
        samples_now = sampling_epochs(cycles, self.per_cycle if plan.cyclical else 1)
        collected = Collected(cycles * self.per_cycle, len(y), self.outputs).to(x.device)

        def after_epoch(progress: Progress) -> None:
            if pruner is not None:
                pruner.after_epoch()
            if progress.epoch >= first and samples_now(progress):
                collected.add_(predicted(model, x, precision=self.precision).mean)

        facts = train(
            model,
            data.train,
            optimizer=optimizer,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            lr_schedule=cosine_cycles(cycles),
            precision=self.precision,
            graph=self.graph,
            after_epoch=after_epoch,
            beside=[collected],
            settings=self.comparable() | {"method": method},
            folder=folder,
            say=say,
        )
        found = collected.all()
        return {
            **scores(found.mean(0), y),
            "networks": len(found),
            "each": [scores(probabilities, y)["accuracy"] for probabilities in found],
            "single": scores(found[-1], y),
            "sparsity": sparsity(model),
        } | facts

    def optimizer(self, plan: Method, model: nn.Module, count: int, seed: int) -> torch.optim.Optimizer:
        """CV-Adam, or SGD with momentum; both decay all parameters, as the published code does."""
        parameters = list(model.parameters())
        if plan.sampler == "sgd":
            return torch.optim.SGD(parameters, self.sgd_lr, momentum=0.9, weight_decay=self.weight_decay)
        return CVAdam(
            parameters,
            num_data=count,
            lr=self.lr,
            temperature=self.temperature,
            weight_decay=self.weight_decay,
            seed=seed,
        )

    def pruner(self, plan: Method, model: nn.Module) -> SpikeAndSlab:
        """The target alone says what is set to zero; one tenth of the epochs goes by before."""
        assert plan.sparsity is not None
        return SpikeAndSlab(
            model,
            group="weight",
            spike_decay=self.spike_decay,
            soft_threshold=self.soft_threshold,
            hard_threshold=0.0,
            warm_up=max(1, self.epochs // 10),
            feedback=plan.feedback,
            feedback_until=self.last_cycle,
            target=SparsityTarget(plan.sparsity, by_epoch=self.last_cycle),
        )


def sparsity(model: nn.Module) -> float:
    """The part of the weights of linear layers and convolutions that is zero.

    Example:
        >>> sparsity(nn.Linear(3, 2))
        0.0
    """
    weights = [layer.weight for layer in prunable_layers(model)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    command(Samplers, __doc__, "cifar10/", table, arguments)


if __name__ == "__main__":
    main()
