"""How much of a network the posterior calls noise."""

from __future__ import annotations

import torch
from torch import nn

from bayeslim.layers.base import BayesLayer
from bayeslim.log_alpha import log_alpha

__all__ = ["named_sparsity", "sparsity"]


@torch.no_grad()
def named_sparsity(model: nn.Module, threshold: float = 3.0) -> dict[str, float]:
    """The part of each Bayesian layer's weights with `ln alpha > threshold`, by layer name.

    Args:
        model: network with Bayesian layers.
        threshold: 3 calls a weight dead whose dropout rate is above 0.95 (Molchanov et al. 2017);
            `|mean| / std < 0.83` (Graves 2011) is the threshold 0.37.

    Example:
        >>> named_sparsity(bl.mlp([4, 3, 2]))
        {'0': 0.0, '2': 0.0}
    """
    return {
        name: (log_alpha(module.weight.mean(), module.weight.variance()) > threshold).float().mean().item()
        for name, module in model.named_modules()
        if isinstance(module, BayesLayer)
    }


@torch.no_grad()
def sparsity(model: nn.Module, threshold: float = 3.0) -> float:
    """The part of all Bayesian weights (biases excluded) with `ln alpha > threshold`.

    Example:
        >>> sparsity(bl.mlp([4, 3, 2]))
        0.0
    """
    sizes = [m.weight.mean().numel() for m in model.modules() if isinstance(m, BayesLayer)]
    parts = named_sparsity(model, threshold).values()
    return sum(size * part for size, part in zip(sizes, parts, strict=True)) / max(1, sum(sizes))
