"""How much of a network is pruned, or is noise by its posterior."""

from __future__ import annotations

import torch
from torch import nn

from bayeslim.checks.networks import check_network
from bayeslim.pruning.criteria import LOG_ALPHA, Criterion, check_criterion
from bayeslim.pruning.prune import bayes_layers

__all__ = ["named_sparsity", "sparsity"]


@torch.no_grad()
def named_sparsity(
    model: nn.Module, threshold: float | None = None, criterion: Criterion = LOG_ALPHA
) -> dict[str, float]:
    """The part of each Bayesian layer's weights that is pruned or dead by the criterion, by layer name.

    Args:
        model: network with Bayesian layers.
        threshold: where a weight counts as dead; None takes the criterion's own. For log alpha it is 3, a dropout rate
            of 0.95 (Molchanov et al. 2017); `|mean| / std < 0.83` (Graves 2011) is the same as log alpha > 0.37.
        criterion: how a weight is judged.

    Example:
        >>> named_sparsity(bl.mlp([4, 3, 2]))
        {'0': 0.0, '2': 0.0}
    """
    check_network(model, "measure")
    check_criterion(criterion)
    return {
        name: 1 - criterion.keep(layer.weight, threshold).double().mean().item()
        for name, layer in bayes_layers(model).items()
    }


@torch.no_grad()
def sparsity(model: nn.Module, threshold: float | None = None, criterion: Criterion = LOG_ALPHA) -> float:
    """The part of all Bayesian weights (biases excluded) that is pruned or dead by the criterion.

    Example:
        >>> sparsity(bl.mlp([4, 3, 2]))
        0.0
    """
    parts = named_sparsity(model, threshold, criterion).values()
    sizes = [layer.weight.mean().numel() for layer in bayes_layers(model).values()]
    return sum(size * part for size, part in zip(sizes, parts, strict=True)) / max(1, sum(sizes))
