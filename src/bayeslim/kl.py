"""The KL divergence of a whole network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.divergence import kl_divergence
from bayeslim.layers.base import BayesLayer
from bayeslim.posteriors.base import Posterior
from bayeslim.posteriors.k_tied import KTied
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior

__all__ = ["kl", "named_kl", "named_posteriors", "normal_priors", "summed_kl"]

Pair = tuple[str, Posterior, Prior]
"""A posterior with the name of its layer and its prior."""


def named_posteriors(model: nn.Module) -> list[Pair]:
    """Every posterior, once, with the name and the prior of the first layer that holds it."""
    check_network(model, "measure")
    seen: set[int] = set()
    found: list[Pair] = []
    for name, module in model.named_modules():
        if isinstance(module, BayesLayer):
            for posterior, prior in module.posteriors_and_priors():
                if id(posterior) not in seen:
                    seen.add(id(posterior))
                    found.append((name, posterior, prior))
    return found


def normal_priors(pairs: Iterable[Pair]) -> dict[object, tuple[float, float]]:
    """Mean and standard deviation of plain normal priors, by the posteriors that `kl_alongside` can serve."""
    normal = ((q, p.as_normal(q.loc)) for _, q, p in pairs if isinstance(q, MeanField | KTied))
    return {posterior: prior for posterior, prior in normal if prior is not None}


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
        return summed_kl(pairs, {})
    parameter = next(model.parameters(), None)
    return torch.zeros(()) if parameter is None else parameter.new_zeros(())


def summed_kl(pairs: Sequence[Pair], known: Mapping[object, Tensor]) -> Tensor:
    """The sum of the KLs of at least one posterior; those in `known`, maybe in parts, are not computed again."""
    ready = ((known.get(posterior), posterior, prior) for _, posterior, prior in pairs)
    terms = [kl_divergence(q, p) if term is None else term for term, q, p in ready]
    return (torch.hstack if any(term.ndim for term in terms) else torch.stack)(terms).sum()
