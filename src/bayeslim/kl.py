"""The KL divergence of a whole network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayeslim.divergence import kl_divergence
from bayeslim.layers.base import BayesLayer

__all__ = ["kl", "named_kl"]


def named_kl(model: nn.Module) -> dict[str, Tensor]:
    """The KL of every Bayesian layer by its name in `model`, each summed over weights, in nats.

    A posterior that several layers share is counted once, with the first of them.

    Example:
        >>> named_kl(nn.Sequential(Linear(2, 2), nn.ReLU(), Linear(2, 1))).keys()
        dict_keys(['0', '2'])
    """
    seen: set[int] = set()
    result: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if not isinstance(module, BayesLayer):
            continue
        pairs = [(q, p) for q, p in module.posteriors_and_priors() if id(q) not in seen]
        seen.update(id(q) for q, _ in pairs)
        if pairs:
            result[name] = torch.stack([kl_divergence(q, p) for q, p in pairs]).sum()
    return result


def kl(model: nn.Module) -> Tensor:
    """`KL(q || p)` summed over all Bayesian layers, in nats; 0 for a network without any.

    Example:
        >>> kl(Linear(2, 2)).shape
        torch.Size([])
    """
    terms = list(named_kl(model).values())
    if terms:
        return torch.stack(terms).sum()
    parameter = next(model.parameters(), None)
    return torch.zeros(()) if parameter is None else parameter.new_zeros(())
