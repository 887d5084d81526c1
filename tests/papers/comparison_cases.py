"""Made-up data for the comparison of all methods, and settings of a tiny size."""

from __future__ import annotations

import torch

from bayeslim_papers.comparison.command import Comparison
from bayeslim_papers.comparison.data import Case

TRIED = ("map", "mc-dropout", "ensemble", "graves", "ard", "vdp", "cvadam", "sghmc", "dfp")
CONFIG = Comparison(
    sets=("made",),
    methods=TRIED,
    seeds=(0, 1),
    hidden=(10,),
    epochs=8,
    batch_size=20,
    lr=2e-2,
    members=2,
    samples=8,
    per_cycle=2,
    rounds=1,
)


def regression(seed: int) -> Case:
    """A noisy line in three inputs, standardised targets, whose unit is 3."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(240, 3, generator=generator)
    y = 0.9 * x[:, :1] + 0.3 * torch.randn(240, 1, generator=generator)
    return Case(seed, (x[:200], y[:200]), (x[200:], y[200:]), unit=3.0)


def classes(seeds: tuple[int, ...]) -> list[Case]:
    """Two clouds, and outliers that lie between them."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(240) % 2
    x = torch.randn(240, 3, generator=generator) + 4 * (y[:, None] - 0.5)
    strange = 0.1 * torch.randn(30, 3, generator=generator)
    train, test = (x[:200], y[:200]), (x[200:], y[200:])
    return [Case(seed, train, test, strange) for seed in seeds]
