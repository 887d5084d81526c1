"""Deep ensembles: the same network trained several times."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.likelihoods import Gaussian
from bayeslim.likelihoods.base import remember_likelihood_, remembered_likelihood
from bayeslim.predictive.snapshots import Snapshots
from bayeslim.runtime.seeds import derived_seed, seeded

__all__ = ["deep_ensemble"]


def deep_ensemble(
    build: Callable[[], nn.Module], train: Callable[[nn.Module, int], object], *, members: int = 5, seed: int = 0
) -> Snapshots:
    """Train `members` networks from independent beginnings and predict by all of them (Lakshminarayanan et al. 2017).

    `p(y | x) = (1/M) sum_m p(y | x, W_m)`, where W_m are the weights of member m of M. Of the noises
    that members learned, the mean variance stands for all.

    Args:
        build: makes a network, freshly initialised; called under a seed of its own for each member.
        train: trains a network in place, given the network and its seed.
        members: number of networks M.
        seed: the members' seeds follow from it.

    Returns:
        The members as snapshots, for `bl.predict` and `bl.evaluate`; `.model` is the last one.

    Raises:
        ValueError: if `members` is below 1.

    Example:
        >>> ensemble = deep_ensemble(lambda: bl.models.mlp([2, 50, 1]), lambda model, seed: bl.fit(
        ...     model, (x, y), likelihood=bl.likelihoods.Gaussian(0.1), epochs=100, seed=seed))
        >>> bl.predict(ensemble, x).std
    """
    (members,) = check_counts(members=members)
    states: list[dict[str, Tensor]] = []
    noises: list[Tensor] = []
    model, likelihood = nn.Module(), None
    for member in range(members):
        own = derived_seed(seed, member)
        with seeded(own):
            model = build()
        train(model, own)
        states.append({name: value.detach().clone() for name, value in model.state_dict().items()})
        likelihood = remembered_likelihood(model)
        if isinstance(likelihood, Gaussian):
            noises.append(likelihood.log_noise.detach().clone())
    if isinstance(likelihood, Gaussian):
        likelihood = copy.deepcopy(likelihood)  # the members' own stay as they are
        likelihood.log_noise.data = 0.5 * (torch.stack(noises).mul(2).logsumexp(0) - math.log(len(noises)))
        remember_likelihood_(model, likelihood)
    return Snapshots(model, states)
