"""What is known about the channels of a tensor inside a network, and which of them stand or fall together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Channels", "Slots"]


@dataclass(frozen=True)
class Channels:
    """The channels of one tensor.

    A channel is constant if it holds one value at all positions whatever the network's input is. Its slot names the
    set of channels, over all tensors, that can only be removed together.
    """

    axis: int
    """Where the channels are, counted from the front."""
    slots: Tensor
    """(channels,) integers."""
    constant: Tensor
    """(channels,) booleans."""
    value: Tensor
    """(channels,) in float64; meaningless where not constant."""

    def at(self, axis: int) -> Channels:
        """The same channels on another axis."""
        return Channels(axis, self.slots, self.constant, self.value)

    def holding(self, constant: Tensor, value: Tensor) -> Channels:
        """The same slots with other constants; what is not finite counts as varying."""
        constant = constant & value.isfinite()
        return Channels(self.axis, self.slots, constant, value.masked_fill(~constant, 0.0))

    def known(self) -> Tensor:
        """The constants, zero where a channel varies."""
        return self.value.masked_fill(~self.constant, 0.0)


class Slots:
    """Sets of channels that are removed together: a union-find structure over integers."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._pinned: list[int] = []

    def fresh(self, count: int) -> Tensor:
        """New slots, each on its own."""
        start = len(self._parent)
        self._parent.extend(range(start, start + count))
        return torch.arange(start, start + count)

    def channels(self, axis: int, count: int) -> Channels:
        """Channels with new slots of which nothing is known."""
        nothing = torch.zeros(count, dtype=torch.float64)
        return Channels(axis, self.fresh(count), nothing.bool(), nothing)

    def join(self, first: Tensor, second: Tensor) -> None:
        """Let the slots of two tensors fall together, one by one."""
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            self._parent[self._find(a)] = self._find(b)

    def pin(self, slots: Tensor) -> None:
        """Forbid to remove these."""
        self._pinned.extend(slots.tolist())

    def roots(self) -> Tensor:
        """The representative of every slot."""
        return torch.tensor([self._find(slot) for slot in range(len(self._parent))], dtype=torch.long)

    def pinned(self) -> Tensor:
        """Whether a representative may not be removed, by representative."""
        result = torch.zeros(len(self._parent), dtype=torch.bool)
        for slot in self._pinned:
            result[self._find(slot)] = True
        return result

    def _find(self, slot: int) -> int:
        while self._parent[slot] != slot:
            self._parent[slot] = self._parent[self._parent[slot]]
            slot = self._parent[slot]
        return slot
