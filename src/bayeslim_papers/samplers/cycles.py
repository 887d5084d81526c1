"""Cycles of a sampler with snapshots at their ends, and masks that form on the way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bayeslim.optim.groups import Group
from bayeslim.optim.sparsity_target import SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.predictive import Snapshots
from bayeslim.schedules import Progress, sampling_epochs
from bayeslim_papers.training import EpochHook

__all__ = ["Cycles", "Masks"]


@dataclass(frozen=True)
class Masks:
    """What spike-and-slab pruning is asked for."""

    sparsity: float
    feedback: bool = False
    group: Group = "weight"


@dataclass(frozen=True)
class Cycles:
    """When there are snapshots, and how masks come to be."""

    epochs: int
    cycles: int
    per_cycle: int
    burn_in: int = 0
    """Cycles without snapshots."""
    spike_decay: float = 1e-3
    soft_threshold: float = 1e-4

    @property
    def last(self) -> int:
        """Epochs before the last cycle (where `cycles` divides them): the masks are final after them."""
        return self.epochs - math.ceil(self.epochs / self.cycles)

    def pruner(self, model: nn.Module, masks: Masks) -> SpikeAndSlab:
        """The target alone says what is set to zero; one tenth of the epochs goes by before."""
        return SpikeAndSlab(
            model,
            group=masks.group,
            spike_decay=self.spike_decay,
            soft_threshold=self.soft_threshold,
            hard_threshold=0.0,
            warm_up=max(1, self.epochs // 10),
            feedback=masks.feedback,
            feedback_until=self.last,
            target=SparsityTarget(masks.sparsity, by_epoch=self.last),
        )

    def followed(
        self, model: nn.Module, pruner: SpikeAndSlab | None = None, folder: Path | None = None
    ) -> tuple[Snapshots, EpochHook]:
        """The snapshots of a network, and the hook of `bl.fit` that prunes and takes them.

        They are of all cycles after the burn-in; of a network that is pruned, of the last one, whose snapshots share
        one mask.
        """
        first = self.last if pruner else self.burn_in * self.epochs // self.cycles
        in_time = sampling_epochs(self.cycles, self.per_cycle)
        snapshots = Snapshots(model, folder or [], when=lambda now: now.epoch >= first and in_time(now))

        def after_epoch(network: nn.Module, optimizer: torch.optim.Optimizer, now: Progress) -> None:
            if pruner:
                pruner.after_epoch()
            snapshots(network, optimizer, now)

        return snapshots, after_epoch
