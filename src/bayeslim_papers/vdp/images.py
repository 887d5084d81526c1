"""VDP++ beside a plain network and sampled weights, with deep networks of images.

Three methods train the same network from the same means:

- det: the plain network;
- bbb: sampled weights, one draw per batch; predictions average over draws;
- vdp: mean and variance of every value, exact moments through every block; one pass predicts.

bbb and vdp share posterior, prior and weight of the KL, so that only the estimator differs. Each network is scored on
the test images, under noise of -6 to 40 dB, and with its smallest weights removed; training tells time and memory.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import nn

import bayeslim as bl
from bayeslim.analysis import SNRS, magnitude_curve, noise_sweep
from bayeslim.posteriors import fan_in_mean_field
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import cosine_cycles, warmup_linear
from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Log, Options
from bayeslim_papers.images.experiment import ImageExperiment
from bayeslim_papers.images.imagenet import CROP, load_imagenet
from bayeslim_papers.images.varied import Splits, load_cifar10, load_mnist, made_images
from bayeslim_papers.training import PRECISIONS, in_percent, train
from bayeslim_papers.vdp.results import images as table

__all__ = ["PAPER", "WAYS", "Vdp", "VdpCifar", "VdpImagenet", "VdpVit", "cifar", "imagenet", "vit"]

WAYS = {"det": "mean", "bbb": "sample", "vdp": "moments"}
"""Method -> how it predicts."""
PAPER: dict[str, Any] = {
    "seconds of an epoch over det": {"vdp": 2.5},
    "statements": [
        "the accuracies do not differ significantly",
        "at -6 dB every Bayesian network is more accurate than det (p < 0.01)",
        "vdp keeps its accuracy past 90 % of the weights removed",
        "the variance of the predicted class falls as the signal-to-noise ratio grows",
    ],
}
"""What Epifano et al. say; they print no tables."""


@dataclass(frozen=True)
class Vdp(ImageExperiment):
    """Settings."""

    paper: ClassVar[Mapping[str, Any]] = PAPER
    tolerance: ClassVar[Mapping[str, float]] = {"seconds of an epoch over det": 0.5, "accuracy % below det": 1.0}
    """Time: by this part of the paper's ratio. Accuracy: what "not significantly" allows."""
    options: ClassVar[Options] = {
        "methods": {"choices": tuple(WAYS)},
        "precision": {"choices": PRECISIONS},
        "graph": {"flags": ("--eager",), "action": "store_false", "help": "without CUDA graphs"},
    } | {
        name: {}
        for name in ("seeds", "epochs", "batch_size", "lr", "kl_weight", "ramp", "prior_std", "ratio", "samples")
    }

    methods: tuple[str, ...] = tuple(WAYS)
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 10
    batch_size: int = 512
    precision: str = "float32"
    """Of the products on CUDA, in training."""
    graph: bool = True
    """Whether a step is replayed as a CUDA graph on CUDA."""
    lr: float = 1e-3
    kl_weight: float = 1.0
    """1 is the ELBO."""
    ramp: int = 0
    """Epochs over which the weight of the KL grows."""
    prior_std: float = 0.05
    """0 takes He's, `sqrt(2 / fan_in)`."""
    ratio: float = 0.1
    """Initial noise of a layer's output relative to its signal."""
    samples: int = 30
    """Draws of weights (bbb) or of outputs (vdp) of a prediction."""
    fractions: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95)
    """Parts of the weights that are removed."""

    @abstractmethod
    def network(self) -> nn.Module:
        """The plain network."""

    def build(self, method: str) -> nn.Module:
        """The network of a method; all start from the same means for one random state."""
        plain = self.network()
        if method == "det":
            return plain
        return bl.bayesianize_(
            plain,
            posterior=lambda init: fan_in_mean_field(init, self.ratio),
            prior=bl.priors.Normal(0.0, self.prior_std) if self.prior_std else bl.priors.HeNormal(),
            estimator=bl.weight_sample if method == "bbb" else bl.moments,
        )

    def measured(self, variant: str, seed: int, data: Splits, log: Log = SILENT) -> dict[str, Any]:
        """Scores of the trained network, under noise and pruned."""
        x, y = data.test.plain()
        with seeded(seed):
            model = self.build(variant).to(x.device)
        adam = functools.partial(torch.optim.Adam, lr=self.lr, amsgrad=True, fused=True, capturable=x.is_cuda)
        facts = train(
            model,
            data.train.loader(self.batch_size),
            likelihood=bl.Categorical(),
            optimizer=adam,
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            lr_schedule=cosine_cycles(1),
            kl_schedule=warmup_linear(0, self.ramp, self.kl_weight),
            precision=self.precision,
            graph=self.graph,
            log=log,
        )
        way: dict[str, Any] = {"method": WAYS[variant], "samples": self.samples}
        noise = [asdict(point) for point in noise_sweep(model, x, y, SNRS, **way)]
        curve = magnitude_curve(model, (x, y), self.fractions, **way)
        return {
            **in_percent(bl.evaluate(model, (x, y), **way)),
            "noise": [point | {"accuracy": 100 * point["accuracy"]} for point in noise],
            "pruned": [{"fraction": one.fraction, "accuracy": 100 * one.scores["accuracy"]} for one in curve],
        } | facts


@dataclass(frozen=True)
class VdpCifar(Vdp):
    """VDP++ with ResNet-18 on CIFAR-10: a plain network, sampled weights, and moments through every block.

        bayeslim reproduce vdp-cifar --device cuda --out results/vdp_cifar.json

    Adam with amsgrad, one cosine, batch 128, random crops and mirror images; methods det, bbb and vdp. The paper has
    209 epochs of AdamW, AutoAugment and bottleneck blocks behind a 7x7 stem; here the blocks are basic ones behind a
    3x3 stem, as in every other experiment with CIFAR-10.

    The prior is He's, N(0, 2 / fan_in), and the KL, of 223 weights per image, counts a tenth of what it does in the
    ELBO, growing over the first epochs: both are settings, as the weights of the paper's terms are.
    """

    name: ClassVar[str] = "vdp-cifar"
    root: ClassVar[str] = "cifar10/"
    read = staticmethod(load_cifar10)
    options: ClassVar[Options] = Vdp.options | {"width": {}}

    epochs: int = 200
    batch_size: int = 128
    precision: str = "bfloat16"
    kl_weight: float = 0.1
    ramp: int = 10
    prior_std: float = 0.0
    width: int = 64
    """Channels of the first stage."""

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes."""
        few: dict[str, Any] = {"seeds": (0,), "epochs": 6, "batch_size": 16, "samples": 5, "fractions": (0.5, 0.9)}
        small = cls(**few, kl_weight=1e-3, ramp=2, width=2, lr=0.01)
        return small, made_images(8, 3, (128, 64), device)

    def network(self) -> nn.Module:
        """ResNet-18."""
        return bl.models.resnet18(width=self.width)


@dataclass(frozen=True)
class VdpVit(Vdp):
    """VDP++ with a small vision transformer on MNIST: moments through every block.

        bayeslim reproduce vdp-vit --device cuda --out results/vdp_vit.json

    16 patches of 7x7, width 64, 6 blocks, 8 heads; Adam with amsgrad, batch 512, 10 epochs, pixels in [0, 1]; methods
    det and vdp, on demand bbb. In the code of the paper the transformer returns the variance it was given, so that only
    patches and head make any; here all blocks do.
    """

    name: ClassVar[str] = "vdp-vit"
    root: ClassVar[str] = "mnist/"
    read = staticmethod(load_mnist)

    methods: tuple[str, ...] = ("det", "vdp")
    depth: int = 6
    """Blocks."""

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """One block on images of four classes."""
        small = cls(seeds=(0,), epochs=4, batch_size=16, kl_weight=1e-3, depth=1, samples=5, fractions=(0.5, 0.9))
        return small, made_images(28, 1, (128, 64), device)

    def network(self) -> nn.Module:
        """The transformer of `bl.models.vit_small`."""
        return bl.models.ViT(depth=self.depth)


@dataclass(frozen=True)
class VdpImagenet(Vdp):
    """VDP++ with ViT-S/16 on ImageNet: a recipe, which has not been run at full size.

        bayeslim reproduce vdp-imagenet --root DATA --device cuda --out results/vdp_imagenet.json

    196 patches of 16x16, width 384, 12 blocks, 6 heads; Adam with amsgrad, learning rate 0.001, 300 epochs, crops of
    224 pixels, half of them mirrored; methods det and vdp, on demand bbb. As a script of the authors does, the KL to
    N(0, 1) is added at 0.01 beside 1000 times the mean cross-entropy: 12.8 times its weight in the ELBO. That script
    has patches of 32 and six GPUs with 1024 images each; theirs is 45 % top-1 accuracy, in training. `--root` must hold
    imagenet/ as `python -m bayeslim_papers.images.imagenet` writes it; batches are read from its files.
    """

    name: ClassVar[str] = "vdp-imagenet"
    root: ClassVar[str] = "imagenet/"
    read = staticmethod(load_imagenet)
    paper: ClassVar[Mapping[str, Any]] = PAPER | {"top-1 accuracy % in training": 45.0}
    options: ClassVar[Options] = Vdp.options | {"depth": {}}

    methods: tuple[str, ...] = ("det", "vdp")
    seeds: tuple[int, ...] = (0,)
    epochs: int = 300
    batch_size: int = 1024
    precision: str = "bfloat16"
    kl_weight: float = 12.8
    prior_std: float = 1.0
    image: int = CROP
    patch: int = 16
    width: int = 384
    depth: int = 12
    """Blocks."""
    heads: int = 6
    classes: int = 1000

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Splits]:
        """One narrow block on images of four classes, of which pieces are cut out."""
        few: dict[str, Any] = {"epochs": 4, "batch_size": 16, "kl_weight": 1e-3, "samples": 5, "fractions": (0.5, 0.9)}
        small = cls(**few, image=24, patch=8, width=32, depth=1, heads=4, classes=4)
        return small, made_images(28, 3, (128, 64), device, crop=24)

    def network(self) -> nn.Module:
        """The transformer, ViT-S/16 unless the settings say otherwise."""
        sizes: dict[str, Any] = {"image": self.image, "patch": self.patch, "dim": self.width, "hidden": 4 * self.width}
        return bl.models.ViT(channels=3, depth=self.depth, heads=self.heads, classes=self.classes, **sizes)


cifar, vit, imagenet = (command(kind, table) for kind in (VdpCifar, VdpVit, VdpImagenet))
"""What `bayeslim reproduce` runs."""
