"""The soft and the hard mask of one layer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayeslim.optim.groups import PrunableLayer

__all__ = ["LayerMasks"]


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

    @property
    def weight(self) -> Tensor:
        """The weights to judge by."""
        return self.layer.weight.detach() if self.dense is None else self.dense

    def to_(self, device: torch.device) -> None:
        """Move to the device of the weight."""
        self.spike, self.kept = self.spike.to(device), self.kept.to(device)
        self.dense = None if self.dense is None else self.dense.to(device)

    def mask_weight_(self) -> None:
        """Put the masked weights into the network."""
        self.layer.weight.detach().copy_(self.weight * self.kept)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name."""
        named = {"spike": self.spike, "kept": self.kept} | ({} if self.dense is None else {"dense": self.dense})
        return {f"{name}.{self.layer.name}": tensor for name, tensor in named.items()}
