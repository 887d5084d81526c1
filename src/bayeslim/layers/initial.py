"""How fresh layers draw their means."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["he_normal"]


def he_normal(*shape: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Draw `N(0, 2 / fan_in)` (He et al. 2015) for a weight `(out, in / groups, *kernel)`.

    Example:
        >>> he_normal(300, 784).std().item()  # about sqrt(2 / 784) = 0.0505
        0.0505...
    """
    weight = torch.randn(*shape, device=device, dtype=dtype)
    return weight * math.sqrt(2 / max(1, math.prod(shape[1:])))
