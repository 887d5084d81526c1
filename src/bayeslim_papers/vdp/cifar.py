"""VDP++ with ResNet-18 on CIFAR-10: a plain network, sampled weights, and moments through every block.

    bayeslim reproduce vdp-cifar --device cuda --out results/vdp_cifar.json

Adam with amsgrad, one cosine, batch 128, random crops and mirror images; methods det, bbb and vdp (see `vdp`). The
paper has 209 epochs of AdamW, AutoAugment and bottleneck blocks behind a 7x7 stem; here the blocks are basic ones
behind a 3x3 stem, as in every other experiment with CIFAR-10.

The prior is He's, N(0, 2 / fan_in), and the KL, of 223 weights per image, counts a tenth of what it does in the ELBO,
growing over the first epochs: both are settings, as the weights of the paper's terms are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import nn

import bayeslim as bl
from bayeslim_papers.images.command import command
from bayeslim_papers.images.images import Splits, load_cifar10, made_images
from bayeslim_papers.vdp.images import Vdp
from bayeslim_papers.vdp.images_table import table

__all__ = ["VdpCifar", "main"]


@dataclass(frozen=True)
class VdpCifar(Vdp):
    """Settings."""

    name: ClassVar[str] = "vdp-cifar"
    settings: ClassVar[tuple[str, ...]] = (*Vdp.settings, "width")

    epochs: int = 200
    batch_size: int = 128
    precision: str = "bfloat16"
    kl_weight: float = 0.1
    ramp: int = 10
    prior_std: float = 0.0
    width: int = 64
    """Channels of the first stage."""

    def load(self, root: Path | None, device: str) -> Splits:
        """CIFAR-10, cropped and mirrored."""
        return load_cifar10(root, device)

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """A narrow network on images of four classes."""
        few: dict[str, Any] = {"seeds": (0,), "epochs": 6, "batch_size": 16, "samples": 5, "fractions": (0.5, 0.9)}
        small = cls(**few, kl_weight=1e-3, ramp=2, width=2, lr=0.01)
        return small, made_images(8, 3, (128, 64), device)

    def network(self) -> nn.Module:
        """ResNet-18."""
        return bl.models.resnet18(width=self.width)


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    command(VdpCifar, __doc__, "cifar10/", table, arguments)


if __name__ == "__main__":
    main()
