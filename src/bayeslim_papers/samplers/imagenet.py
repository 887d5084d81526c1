"""CV-Adam and pruning on the way (arXiv 2210.12957) with ResNet-50 on ImageNet: a recipe, which has not been run.

    bayeslim reproduce samplers-imagenet --root DATA --device cuda --out results/samplers_imagenet.json

The methods of `samplers`. Of the paper's settings one knows 200 epochs in four cycles, the first of them without
snapshots, so that there are nine. Batches, learning rates and decay are those usual for this network: 256, 0.1 for SGD,
as much more than for CIFAR-10 for CV-Adam, 0.0001. `--root` must hold imagenet/ as `python -m
bayeslim_papers.images.imagenet` writes it; batches are read from its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

import bayeslim as bl
from bayeslim_papers.images.command import command
from bayeslim_papers.images.imagenet import load_imagenet
from bayeslim_papers.images.images import Splits, made_images
from bayeslim_papers.samplers.cifar import Samplers
from bayeslim_papers.samplers.cifar_table import table

__all__ = ["PAPER", "SamplersImagenet", "main"]

PAPER: dict[str, Any] = {
    "epochs, cycles": "200 and 4, it does not say the others",
    "accuracy %": {"sgd": 76.5, "cvadam": 76.8, "dfp-80": 74.5, "dfp-90": 73.5, "dpf-80": 74.6, "dpf-90": 73.2},
    "accuracy % of others": {"cSGLD": 76.7, "SM, 80, 90 % sparse": [73.8, 72.3], "DSR, 80, 90 % sparse": [73.3, 72.0]},
}
"""Table 3, ResNet-50; `sgd` is its baseline."""


@dataclass(frozen=True)
class SamplersImagenet(Samplers):
    """Settings."""

    name: ClassVar[str] = "samplers-imagenet"
    paper: ClassVar[dict[str, Any]] = PAPER
    burn_in: ClassVar[int] = 1

    methods: tuple[str, ...] = ("cvadam", "dfp-80", "dfp-90", "dpf-80", "dpf-90", "sgd")
    batch_size: int = 256
    graph: bool = False
    """Batches are read from files, which no graph can do."""
    lr: float = 4.0
    sgd_lr: float = 0.1
    weight_decay: float = 1e-4
    classes: int = 1000

    @property
    def outputs(self) -> int:
        """Those of ImageNet."""
        return self.classes

    def load(self, root: Path | None, device: str) -> Splits:
        """ImageNet."""
        return load_imagenet(root, device)

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes, of which pieces are cut out."""
        methods = ("cvadam", "dfp-90", "sgd")
        small = cls(methods=methods, epochs=8, batch_size=16, width=4, lr=0.3, cycles=2, per_cycle=2, classes=4)
        return small, made_images(36, 3, (128, 64), device, crop=32)

    def network(self) -> nn.Module:
        """ResNet-50."""
        return bl.models.resnet50(self.outputs, self.width)


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    command(SamplersImagenet, __doc__, "imagenet/", table, arguments)


if __name__ == "__main__":
    main()
