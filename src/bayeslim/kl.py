"""The KL divergence of a whole network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from bayeslim.divergence import kl_divergence
from bayeslim.layers.base import BayesLayer
from bayeslim.posteriors.base import Posterior
from bayeslim.posteriors.k_tied import KTied
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior

__all__ = ["kl", "named_kl", "normal_priors"]


def normal_priors(model: nn.Module) -> dict[object, tuple[float, float]]:
    """Mean and standard deviation of plain normal priors, by the posteriors that `kl_alongside` can serve."""
    normal = ((q, p.as_normal(q.loc)) for _, q, p in _pairs(model) if isinstance(q, MeanField | KTied))
    return {posterior: prior for posterior, prior in normal if prior is not None}


def named_kl(model: nn.Module, known: Mapping[object, Tensor] | None = None) -> dict[str, Tensor]:
    """The KL of every Bayesian layer by its name in `model`, each summed over weights, in nats.

    A posterior that several layers share is counted once, with the first of them.

    Args:
        model: the network.
        known: KLs that need not be computed again, by posterior.

    Example:
        >>> named_kl(nn.Sequential(Linear(2, 2), nn.ReLU(), Linear(2, 1))).keys()
        dict_keys(['0', '2'])
    """
    result: dict[str, Tensor] = {}
    for name, term in _terms(model, known):
        result[name] = result[name] + term if name in result else term
    return result


def kl(model: nn.Module, known: Mapping[object, Tensor] | None = None) -> Tensor:
    """`KL(q || p)` summed over all Bayesian layers, in nats; 0 for a network without any.

    Args:
        model: the network.
        known: KLs that need not be computed again, by posterior.

    Example:
        >>> kl(Linear(2, 2)).shape
        torch.Size([])
    """
    terms = [term for _, term in _terms(model, known)]
    if terms:
        return torch.stack(terms).sum()
    parameter = next(model.parameters(), None)
    return torch.zeros(()) if parameter is None else parameter.new_zeros(())


def _terms(model: nn.Module, known: Mapping[object, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
    """The KL of every posterior, with the name of its layer."""
    for name, posterior, prior in _pairs(model):
        ready = None if known is None else known.get(posterior)
        yield name, kl_divergence(posterior, prior) if ready is None else ready


def _pairs(model: nn.Module) -> Iterator[tuple[str, Posterior, Prior]]:
    """Every posterior, once, with the name and the prior of the first layer that holds it."""
    seen: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, BayesLayer):
            for posterior, prior in module.posteriors_and_priors():
                if id(posterior) not in seen:
                    seen.add(id(posterior))
                    yield name, posterior, prior
