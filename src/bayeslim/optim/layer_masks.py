"""The soft and the hard mask of one layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from bayeslim.optim.groups import PrunableLayer

__all__ = ["LayerMasks"]

MOMENTA = ("momentum_buffer", "exp_avg", "momentum", "velocity")
"""What optimisers call the state that moves a weight without a gradient."""


@dataclass
class LayerMasks:
    """A layer and what is known of its groups; tensors are changed in place, so that a CUDA graph sees them."""

    layer: PrunableLayer
    spike: Tensor
    """Where a group is in the spike; axes as `PrunableLayer.mean_square` leaves them."""
    kept: Tensor
    """Where a weight is not set to zero."""
    dense: Tensor | None
    """The weights that the optimiser moves, with feedback."""
    _written: tuple[int, int] | None = field(default=None, init=False)
    """The network's weight as it was last written from here."""

    @property
    def weight(self) -> Tensor:
        """The weights to judge by."""
        return self.layer.weight.detach() if self.dense is None else self.dense

    def follow_(self) -> None:
        """Go where the network's weight is, in its type, and take over its values where it is not masked.

        It may have been moved, converted or given other values since it was last written from here.
        """
        if self._written == self._now():
            return
        weight = self.layer.weight.detach()
        self.spike, self.kept = self.spike.to(weight.device), self.kept.to(weight.device)
        if self.dense is not None:
            self.dense = self.dense.to(weight)
            torch.where(self.kept, weight, self.dense, out=self.dense)

    def mask_weight_(self) -> None:
        """Put the masked weights into the network."""
        torch.mul(self.weight, self.kept, out=self.layer.weight.detach())
        self._written = self._now()

    def stop_momenta_(self, optimizer: torch.optim.Optimizer) -> None:
        """Without feedback: nothing moves a pruned weight."""
        state = optimizer.state.get(self.layer.weight, {}) if self.dense is None else {}
        for name in MOMENTA:
            if isinstance(momentum := state.get(name), Tensor):
                momentum.mul_(self.kept)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, in step with the network."""
        self.follow_()
        named = {"spike": self.spike, "kept": self.kept} | ({} if self.dense is None else {"dense": self.dense})
        return {f"{name}.{self.layer.name}": tensor for name, tensor in named.items()}

    def _now(self) -> tuple[int, int]:
        """What changes with the weight: torch counts how often it was written to, and another type lies elsewhere."""
        weight = self.layer.weight
        return weight._version, weight.data_ptr()
