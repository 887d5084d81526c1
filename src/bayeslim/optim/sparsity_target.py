"""Reach an asked sparsity at an asked time."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["SparsityTarget", "pruned_part", "smallest_level"]


@dataclass(frozen=True)
class SparsityTarget:
    """Prune the part `sparsity` of the prunable weights by the end of epoch `by_epoch`, along a cubic ramp.

    What is below the `hard_threshold` of `SpikeAndSlab` goes besides; with `hard_threshold=0` the part is met to within
    one group.

    `s(t) = sparsity * (1 - (1 - t)^3)`, where t goes from 0 at the end of the warm-up to 1 at `by_epoch`: fast at
    first, when there is much to spare (dynamic pruning with feedback, Lin et al. 2020).

    Args:
        sparsity: in (0, 1).
        by_epoch: epochs after which it is reached, counted from 1.

    Example:
        >>> SparsityTarget(0.8, by_epoch=100).at(epoch=55, warm_up=10)
        0.7
    """

    sparsity: float
    by_epoch: int

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise ValueError(f"`sparsity` must lie in (0, 1), got {self.sparsity}: pass e.g. 0.9")
        if self.by_epoch < 1:
            raise ValueError(f"`by_epoch` must be at least 1, got {self.by_epoch}: pass e.g. 3/4 of the epochs")

    def at(self, epoch: int, warm_up: int) -> float:
        """The sparsity asked for after `epoch` epochs, of which the first `warm_up` prune nothing."""
        progress = min(1.0, max(0.0, (epoch - warm_up) / (self.by_epoch - warm_up)))
        return self.sparsity * (1 - (1 - progress) ** 3)


def smallest_level(sizes: Tensor, reached: Callable[[float], bool]) -> float:
    """The smallest of the ascending `sizes` (n,) for which `reached` holds, by bisection; the last one if none does."""
    index = bisect.bisect_left(range(len(sizes)), True, key=lambda i: reached(sizes[i].item()))
    return sizes[min(index, len(sizes) - 1)].item()


def pruned_part(masks: list[Tensor]) -> float:
    """The part of all weights that masks (True keeps) set to zero."""
    kept = torch.stack([mask.sum() for mask in masks]).sum()
    return 1 - kept.item() / sum(mask.numel() for mask in masks)
