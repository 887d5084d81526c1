"""Small data sets and networks for the training loop."""

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bayeslim as bl


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Scikit-learn's 8x8 digits as (train, test) pairs, pixels in [0, 1]."""
    data: Any = load_digits()
    x = torch.from_numpy((data.data / 16).astype(np.float32))
    y = torch.from_numpy(data.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1400], order[1400:]
    return (x[train], y[train]), (x[test], y[test])


def blobs(count: int = 48, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes of points in three dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    return torch.randn(count, 3, generator=generator) + 2 * torch.eye(3)[y], y


def line(count: int = 48, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A noisy linear relation with two targets."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, generator=generator)
    return x, x[:, :2] + 0.3 * torch.randn(count, 2, generator=generator)


def small(seed: int = 0, method: str = "ard", outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.mlp([3, 8, outputs], method=method)


def state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def equal(first: nn.Module | dict[str, Tensor], second: nn.Module | dict[str, Tensor]) -> bool:
    """Whether two states are equal bit for bit."""
    a, b = (part.state_dict() if isinstance(part, nn.Module) else part for part in (first, second))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def distance(first: nn.Module | dict[str, Tensor], second: nn.Module | dict[str, Tensor]) -> float:
    """The largest difference between two states."""
    a, b = (part.state_dict() if isinstance(part, nn.Module) else part for part in (first, second))
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)
