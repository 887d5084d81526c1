"""VDP++ with a small vision transformer on MNIST: moments through every block.

    bayeslim reproduce vdp-vit --device cuda --out results/vdp_vit.json

16 patches of 7x7, width 64, 6 blocks, 8 heads; Adam with amsgrad, batch 512, 10 epochs, pixels in [0, 1]; methods det
and vdp, on demand bbb (see `vdp`). In the code of the paper the transformer returns the variance it was given, so that
only patches and head make any; here all blocks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from torch import nn

import bayeslim as bl
from bayeslim_papers.images.command import command
from bayeslim_papers.images.images import Splits, load_mnist, made_images
from bayeslim_papers.vdp.images import Vdp
from bayeslim_papers.vdp.images_table import table

__all__ = ["VdpVit", "main"]


@dataclass(frozen=True)
class VdpVit(Vdp):
    """Settings."""

    name: ClassVar[str] = "vdp-vit"

    methods: tuple[str, ...] = ("det", "vdp")
    depth: int = 6
    """Blocks."""

    def load(self, root: Path | None, device: str) -> Splits:
        """MNIST."""
        return load_mnist(root, device)

    @classmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """One block on images of four classes."""
        small = cls(seeds=(0,), epochs=4, batch_size=16, kl_weight=1e-3, depth=1, samples=5, fractions=(0.5, 0.9))
        return small, made_images(28, 1, (128, 64), device)

    def network(self) -> nn.Module:
        """The transformer of `bl.models.vit_small`."""
        return bl.models.ViT(depth=self.depth)


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    command(VdpVit, __doc__, "mnist/", table, arguments)


if __name__ == "__main__":
    main()
