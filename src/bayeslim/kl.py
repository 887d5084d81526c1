"""The KL divergence of a whole network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayeslim.divergence import kl_divergence
from bayeslim.layers.base import named_posteriors

__all__ = ["kl", "named_kl", "named_posteriors"]


def named_kl(model: nn.Module) -> dict[str, Tensor]:
    """The KL of every Bayesian layer by its name in `model`, each summed over weights, in nats.

    A posterior that several layers share is counted once, with the first of them.

    Example:
        >>> named_kl(nn.Sequential(Linear(2, 2), nn.ReLU(), Linear(2, 1))).keys()
        dict_keys(['0', '2'])
    """
    result: dict[str, Tensor] = {}
    for name, posterior, prior in named_posteriors(model):
        term = kl_divergence(posterior, prior)
        result[name] = result[name] + term if name in result else term
    return result


def kl(model: nn.Module) -> Tensor:
    """`KL(q || p)` summed over all Bayesian layers, in nats; 0 for a network without any.

    Example:
        >>> kl(Linear(2, 2)).shape
        torch.Size([])
    """
    pairs = named_posteriors(model)
    if pairs:
        return torch.stack([kl_divergence(posterior, prior) for _, posterior, prior in pairs]).sum()
    parameter = next(model.parameters(), None)
    return torch.zeros(()) if parameter is None else parameter.new_zeros(())
