"""CV-Adam and pruning on the way with deep networks of images (arXiv 2210.12957)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import CVAdam
from bayeslim.optim.groups import prunable_layers
from bayeslim.predictive import Snapshots
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import cosine_cycles
from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Log, Options
from bayeslim_papers.images.experiment import ImageExperiment
from bayeslim_papers.images.imagenet import load_imagenet
from bayeslim_papers.images.varied import Splits, load_cifar10, made_images
from bayeslim_papers.samplers.cycles import Cycles, Masks
from bayeslim_papers.tables import Runs, average, by, by_method, one_row_each, spread, spreads
from bayeslim_papers.training import PRECISIONS, in_percent, train

__all__ = ["METHODS", "Method", "Samplers", "SamplersImagenet", "cifar", "imagenet", "table"]

UNITS = ("dfp", "dpf")
"""Begin the names of the methods that remove single weights here and whole channels in the paper."""
OTHER_UNITS = """Not comparable: `dfp` and `dpf` set single weights to zero here. The paper judges kernels and removes
whole channels, which costs more accuracy at the same sparsity; its figures in brackets are for orientation alone."""


@dataclass(frozen=True)
class Method:
    """How a network is trained."""

    sampler: Literal["sgd", "cvadam"] = "cvadam"
    cyclical: bool = True
    """Whether it goes through cycles and gives snapshots."""
    masks: Masks | None = None


METHODS: dict[str, Method] = {
    "cvadam": Method(),
    **{f"dfp-{percent}": Method(masks=Masks(percent / 100)) for percent in (70, 80, 90)},
    **{f"dpf-{percent}": Method(masks=Masks(percent / 100, feedback=True)) for percent in (70, 80, 90)},
    "sgd": Method("sgd", cyclical=False),
    "sgd-snapshots": Method("sgd"),
}
"""Method by name."""


@dataclass(frozen=True)
class Samplers(ImageExperiment):
    """CV-Adam and pruning on the way (arXiv 2210.12957) with ResNet-18 on CIFAR-10: the paper's table 1.

        bayeslim reproduce samplers-cifar --device cuda --out results/samplers_cifar.json

    ResNet-18 with a 3x3 stem, random crops and mirror images, the same epochs for all methods:

    - cvadam: CV-Adam at the cold temperature, cosine cycles, snapshots after the last three epochs of each: with four
      cycles twelve networks, whose probabilities are averaged;
    - dfp-70, -80, -90: the same with spike-and-slab masks over single weights, which reach 70, 80 and 90 % before the
      last cycle and only grow; its three snapshots share one mask. dpf-70, -80, -90: with feedback, weights may come
      back;
    - sgd: momentum 0.9, one cosine; sgd-snapshots: SGD with the cycles and snapshots of cvadam, which tells what the
      noise and the learned scales add.

    The paper's batches are of 64 images and take 200 epochs. Larger batches want a learning rate in proportion. Its
    settings for pruned networks are not published; the masks' are those of the MNIST experiment. Results are written
    after every network, and a run with the same --out and --checkpoints goes on where it stopped.
    """

    name: ClassVar[str] = "samplers-cifar"
    root: ClassVar[str] = "cifar10/"
    read = staticmethod(load_cifar10)
    options: ClassVar[Options] = {
        "methods": {"choices": tuple(METHODS)},
        "precision": {"choices": PRECISIONS},
    } | {name: {} for name in ("seeds", "epochs", "batch_size", "lr", "sgd_lr", "cycles", "per_cycle", "width")}
    paper: ClassVar[Mapping[str, Any]] = {
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
    tolerance: ClassVar[Mapping[str, float]] = {"accuracy %": 0.5}
    """Of a run of 200 epochs: 2.5 standard errors of an accuracy near 95 % on 10 000 images."""
    burn_in: ClassVar[int] = 0

    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = (0,)
    epochs: int = 200
    batch_size: int = 64
    precision: str = "bfloat16"
    """Of the products on CUDA, in training."""
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

    def network(self) -> nn.Module:
        """The plain network."""
        return bl.models.resnet18(width=self.width)

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes."""
        small = cls(epochs=6, batch_size=16, width=2, lr=0.3, cycles=2, per_cycle=2)
        return small, made_images(8, 3, (128, 64), device)

    def cycles_of(self, plan: Method) -> Cycles:
        """When a method's snapshots are taken."""
        if not plan.cyclical:
            return Cycles(self.epochs, 1, 1)
        settings = self.burn_in, self.spike_decay, self.soft_threshold
        return Cycles(self.epochs, self.cycles, self.per_cycle, *settings)

    def measured(self, variant: str, seed: int, data: Splits, log: Log = SILENT) -> dict[str, Any]:
        """Scores of all snapshots together, of each, and of the last network; sparsity of its kernels."""
        plan, test = METHODS[variant], data.test.plain()
        with seeded(seed):
            model = self.network().to(data.train.device)
        cycles = self.cycles_of(plan)
        pruner = cycles.pruner(model, plan.masks) if plan.masks else None
        snapshots, after_epoch = cycles.followed(model, pruner, log.folder and log.folder / "snapshots")

        def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
            sampler = self.optimizer(plan, [p for group in groups for p in group["params"]], len(data.train), seed)
            return pruner.attach(sampler) if pruner else sampler

        facts = train(
            model,
            data.train.loader(self.batch_size),
            likelihood=bl.Categorical(),
            optimizer=optimizer,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            lr_schedule=cosine_cycles(cycles.cycles),
            precision=self.precision,
            graph=False,  # which these optimisers do not allow
            after_epoch=after_epoch,
            log=log,
        )
        singles = [in_percent(bl.evaluate(Snapshots(model, [state]), test)) for state in snapshots]
        return {
            **in_percent(bl.evaluate(snapshots, test)),
            "networks": len(snapshots),
            "each": [scores["accuracy"] for scores in singles],
            "single": singles[-1],
            "sparsity": sparsity(model),
        } | facts

    def optimizer(self, plan: Method, parameters: list[nn.Parameter], count: int, seed: int) -> torch.optim.Optimizer:
        """CV-Adam, or SGD with momentum; both decay all parameters, as the published code does."""
        if plan.sampler == "sgd":
            return torch.optim.SGD(parameters, self.sgd_lr, momentum=0.9, weight_decay=self.weight_decay)
        own: dict[str, Any] = {"temperature": self.temperature, "weight_decay": self.weight_decay}
        return CVAdam(parameters, num_data=count, lr=self.lr, seed=seed, **own)


@dataclass(frozen=True)
class SamplersImagenet(Samplers):
    """CV-Adam and pruning on the way (arXiv 2210.12957) with ResNet-50 on ImageNet: a recipe, which has not been run.

        bayeslim reproduce samplers-imagenet --root DATA --device cuda --out results/samplers_imagenet.json

    The methods of `samplers-cifar`. Of the paper's settings one knows 200 epochs in four cycles, the first of them
    without snapshots, so that there are nine. Batches, learning rates and decay are those usual for this network: 256,
    0.1 for SGD, as much more than for CIFAR-10 for CV-Adam, 0.0001. `--root` must hold imagenet/ as `python -m
    bayeslim_papers.images.imagenet` writes it; batches are read from its files.
    """

    name: ClassVar[str] = "samplers-imagenet"
    root: ClassVar[str] = "imagenet/"
    read = staticmethod(load_imagenet)
    paper: ClassVar[Mapping[str, Any]] = {
        "epochs, cycles": "200 and 4, it does not say the others",
        "accuracy %": {"sgd": 76.5, "cvadam": 76.8, "dfp-80": 74.5, "dfp-90": 73.5, "dpf-80": 74.6, "dpf-90": 73.2},
        "accuracy % of others": {
            "cSGLD": 76.7,
            "SM, 80, 90 % sparse": [73.8, 72.3],
            "DSR, 80, 90 % sparse": [73.3, 72.0],
        },
    }
    """Table 3, ResNet-50; `sgd` is its baseline."""
    burn_in: ClassVar[int] = 1

    methods: tuple[str, ...] = ("cvadam", "dfp-80", "dfp-90", "dpf-80", "dpf-90", "sgd")
    batch_size: int = 256
    lr: float = 4.0
    sgd_lr: float = 0.1
    weight_decay: float = 1e-4
    classes: int = 1000

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes, of which pieces are cut out."""
        methods = ("cvadam", "dfp-90", "sgd")
        small = cls(methods=methods, epochs=8, batch_size=16, width=4, lr=0.3, cycles=2, per_cycle=2, classes=4)
        return small, made_images(36, 3, (128, 64), device, crop=32)

    def network(self) -> nn.Module:
        """ResNet-50."""
        return bl.models.resnet50(self.classes, self.width)


def sparsity(model: nn.Module) -> float:
    """The part of the weights of linear layers and convolutions that is zero."""
    weights = [layer.weight for layer in prunable_layers(model)]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, and which are as near the paper as they should be."""
    config, paper, tolerance = record["config"], record["paper"]["accuracy %"], record["tolerance"]["accuracy %"]
    groups = by_method(record)

    def beside(runs: Runs) -> str:
        found, name = spread([run["accuracy"] for run in runs]), runs[0]["method"]
        units = ", channels" if name.startswith(UNITS) else ""
        return f"{found} ({paper[name]}{units})" if name in paper else found

    columns = [("networks", average("networks", "g")), ("accuracy % (paper)", beside)]
    columns += [("NLL", spreads("nll")), ("ECE", spreads("ece"))]
    columns += [("last network: accuracy %", spreads("single/accuracy")), ("NLL", spreads("single/nll"))]
    columns += [("ECE", spreads("single/ece")), ("sparsity %", spreads("sparsity", 100))]
    columns += [("seconds an epoch", spreads("epoch_seconds"))]
    ours = {name: value for name, value in by(record, "accuracy").items() if not name.startswith(UNITS)}
    gaps = {name: value - paper[name] for name, value in ours.items() if name in paper}
    near = [f"{name} {gap:+.2f}{'' if gap >= -tolerance else ' (below)'}" for name, gap in gaps.items()]
    how = f"{config['epochs']} epochs in {config['cycles']} cycles, batches of {config['batch_size']}, learning rate "
    how += f"{config['lr']:g}; the paper has {record['paper'].get('epochs, cycles', '200, 4, 64 and 1')}."
    how += f"\nPoints over the paper, {tolerance} less allowed: {', '.join(near)}." if near else ""
    pruned = any(name.startswith(UNITS) for name in groups)
    return "\n\n".join([one_row_each(groups, columns), how, *([OTHER_UNITS] if pruned else [])])


cifar, imagenet = command(Samplers, table), command(SamplersImagenet, table)
"""What `bayeslim reproduce` runs."""
