"""VDP++ with ViT-S/16 on ImageNet: a recipe, which has not been run at full size.

    bayeslim reproduce vdp-imagenet --root DATA --device cuda --out results/vdp_imagenet.json

196 patches of 16x16, width 384, 12 blocks, 6 heads; Adam with amsgrad, learning rate 0.001, 300 epochs, crops of 224
pixels, half of them mirrored; methods det and vdp, on demand bbb (see `vdp`). As a script of the authors does, the KL
to N(0, 1) is added at 0.01 beside 1000 times the mean cross-entropy: 12.8 times its weight in the ELBO. That script has
patches of 32 and six GPUs with 1024 images each; theirs is 45 % top-1 accuracy, in training. `--root` must hold
imagenet/ as `python -m bayeslim_papers.images.imagenet` writes it; batches are read from its files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

import bayeslim as bl
from bayeslim_papers.images.command import command
from bayeslim_papers.images.imagenet import CROP, load_imagenet
from bayeslim_papers.images.images import Splits, made_images
from bayeslim_papers.vdp.images import PAPER, Vdp
from bayeslim_papers.vdp.images_table import table

__all__ = ["VdpImagenet", "main"]


@dataclass(frozen=True)
class VdpImagenet(Vdp):
    """Settings."""

    name: ClassVar[str] = "vdp-imagenet"
    paper: ClassVar[dict[str, Any]] = PAPER | {"top-1 accuracy % in training": 45.0}
    settings: ClassVar[tuple[str, ...]] = (*Vdp.settings, "depth")

    methods: tuple[str, ...] = ("det", "vdp")
    seeds: tuple[int, ...] = (0,)
    epochs: int = 300
    batch_size: int = 1024
    precision: str = "bfloat16"
    graph: bool = False
    """Batches are read from files, which no graph can do."""
    kl_weight: float = 12.8
    prior_std: float = 1.0
    image: int = CROP
    patch: int = 16
    width: int = 384
    depth: int = 12
    """Blocks."""
    heads: int = 6
    classes: int = 1000

    def load(self, root: Path | None, device: str) -> Splits:
        """ImageNet."""
        return load_imagenet(root, device)

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """One narrow block on images of four classes, of which pieces are cut out."""
        small = cls(
            epochs=4,
            batch_size=16,
            kl_weight=1e-3,
            samples=5,
            fractions=(0.5, 0.9),
            image=24,
            patch=8,
            width=32,
            depth=1,
            heads=4,
            classes=4,
        )
        return small, made_images(28, 3, (128, 64), device, crop=24)

    def network(self) -> nn.Module:
        """The transformer, ViT-S/16 unless the settings say otherwise."""
        return bl.models.ViT(
            image=self.image,
            patch=self.patch,
            channels=3,
            dim=self.width,
            depth=self.depth,
            heads=self.heads,
            hidden=4 * self.width,
            classes=self.classes,
        )


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    command(VdpImagenet, __doc__, "imagenet/", table, arguments)


if __name__ == "__main__":
    main()
