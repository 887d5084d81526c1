"""Made-up images for the Sparse VD experiment, and settings of a tiny size."""

from __future__ import annotations

import torch
from torch import nn

from bayeslim.runtime.seeds import seeded
from bayeslim_papers.sparse_vd.command import SparseVd
from bayeslim_papers.sparse_vd.recipes import NETWORKS, RECIPES, bayesian_, fresh
from bayeslim_papers.sparse_vd.views import Data

CONFIG = SparseVd(
    recipes=("molchanov", "ard-4", "ard-4-first"), seeds=(3,), epochs=4, batch_size=20, tune_epochs=3, samples=3
)


def images(channels: int = 1, side: int = 28, counts: tuple[int, int] = (200, 100)) -> tuple[Data, Data]:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, channels, side, side, generator=generator)

    def part(count: int) -> Data:
        y = torch.arange(count) % 10
        return patterns[y] + 0.3 * torch.randn(count, channels, side, side, generator=generator), y

    return part(counts[0]), part(counts[1])


def started(network: str = "lenet-300-100", recipe: str = "ard") -> nn.Module:
    """A Bayesian network before training."""
    with seeded(0):
        return bayesian_(fresh(NETWORKS[network](), "he"), RECIPES[network][recipe])
