"""Take some channels of a tensor: what stands in front of a layer that lost input features it cannot ask for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian

__all__ = ["Select"]


class Select(nn.Module):
    """`y = x[..., index, ...]` along one axis, for tensors and for Gaussians.

    Args:
        features: how many channels are kept; `index` starts as the first ones.
        axis: the axis of the channels, counted from the end (-1 for a linear layer, -3 for images).

    Example:
        >>> select = Select.of(torch.tensor([0, 2]), axis=-1)
        >>> select(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[1., 3.]])
    """

    index: Tensor

    def __init__(self, features: int, axis: int = -1) -> None:
        if features < 1:
            raise ValueError(f"`features` must be at least 1, got {features}")
        if axis >= 0:
            raise ValueError(f"`axis` must be counted from the end, got {axis}: pass e.g. -1 for a linear layer")
        super().__init__()
        self.features, self.axis = features, axis
        self.register_buffer("index", torch.arange(features))

    @classmethod
    def of(cls, index: Tensor, axis: int = -1) -> Select:
        """Keep the channels `index`, in that order."""
        select = cls(len(index), axis)
        select.index = index.detach().clone()
        return select

    def forward(self, x: Any) -> Any:
        """Select from a tensor or, mean and variance alike, from a `Gaussian`."""
        if isinstance(x, Gaussian):
            return x.map(self.forward)
        return x.index_select(self.axis, self.index)

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        return f"features={self.features}, axis={self.axis}"
