"""The negative evidence lower bound: the one place that knows how the KL is scaled."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts, check_num_data
from bayeslim.divergence import kl_divergence
from bayeslim.kernels import collecting
from bayeslim.kernels.context import may_be_followed
from bayeslim.layers.base import named_posteriors
from bayeslim.likelihoods.base import Likelihood
from bayeslim.optim.scale_decay import DONE, WATCHED, watch_optimizer

__all__ = ["KLScaling", "Nelbo", "check_kl_scaling", "nelbo"]

KLScaling = Literal["elbo", "dissertation"]


class Nelbo(NamedTuple):
    """The loss and its parts, per datum."""

    loss: Tensor
    """`nll + beta * KL / num_data`: minimise this."""
    nll: Tensor
    """Mean negative log-likelihood of the batch, in nats per example."""
    kl: Tensor
    """`KL(q || p)` of the whole network, in nats."""
    beta: Tensor
    """Weight of the KL; 1 is the evidence lower bound."""


def nelbo(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    likelihood: Likelihood,
    num_data: int,
    beta: float | Tensor = 1.0,
    samples: int = 1,
    kl_scaling: KLScaling = "elbo",
    with_kl: bool = True,
) -> Nelbo:
    r"""Estimate the negative ELBO per datum on one batch.

    `loss = (1/B) sum_i -ln p(y_i | x_i, W) + beta * KL(q || p) / num_data`, `W ~ q` by the layers'
    estimators. With `beta = 1` its expectation is the negative ELBO divided by `num_data`; the KL is
    summed over all weights and belongs to the data set, not to the batch.

    Args:
        model: network with Bayesian layers; without any the KL is 0 and this is maximum likelihood.
        x: inputs of the batch.
        y: targets of the batch, as the likelihood wants them.
        likelihood: `p(y | f)`.
        num_data: size of the *training set*, not of the batch.
        beta: weight of the KL, at least 0; at 0 the KL is computed but takes no part in the gradient.
        samples: forward passes whose likelihoods are averaged.
        kl_scaling: "dissertation" divides the KL by `num_data^2`, the under-weighted objective that the
            dissertation's code minimises; only for reproducing it.
        with_kl: False saves computing a KL that has no part in the loss, with `beta = 0.0`; it is NaN then.

    Returns:
        The loss and its parts.

    Raises:
        ValueError: for settings that make no sense.

    Example:
        >>> nelbo(model, x, y, likelihood=Categorical(), num_data=60_000).loss.backward()
    """
    if type(num_data) is not int or num_data < 1:
        num_data = check_num_data(num_data)
    if type(samples) is not int or samples < 1:
        (samples,) = check_counts(samples=samples)
    if isinstance(beta, float | int) and not 0 <= beta < float("inf"):
        raise ValueError(f"`beta` must be finite and not negative, got {beta}: 1 is the ELBO")
    if kl_scaling not in get_args(KLScaling):
        check_kl_scaling(kl_scaling)
    off = isinstance(beta, float | int) and beta == 0
    if not (with_kl or off):
        raise ValueError(f"`with_kl` may be False for `beta=0.0` alone, got {beta}: the loss needs the KL")
    pairs = named_posteriors(model) if with_kl else []
    if pairs and torch.is_grad_enabled() and not may_be_followed() and (pairs[0][1] not in WATCHED or DONE):
        watch_optimizer(model, pairs[0][1])
    normal = () if off else ((posterior, prior.as_normal(posterior)) for _, posterior, prior in pairs)
    known: dict[object, Tensor] = {}
    with nullcontext() if off else collecting({q: prior for q, prior in normal if prior}, known, x):
        terms = [likelihood.expected_nll(model(x), y).mean() for _ in range(samples)]
    nll = terms[0] if samples == 1 else torch.stack(terms).mean()
    with torch.autocast(nll.device.type, enabled=False), torch.no_grad() if off else nullcontext():
        parts = [known[q] if q in known else kl_divergence(q, prior) for _, q, prior in pairs]
        divergence = torch.hstack(parts).sum() if pairs else nll.new_full((), 0.0 if with_kl else math.nan)
    weight = beta.to(divergence) if isinstance(beta, Tensor) else divergence.new_full((), beta)
    if off:  # scales without noise get no gradient at all, and an infinite KL does no harm
        return Nelbo(nll, nll, divergence, weight)
    scale = num_data if kl_scaling == "elbo" else num_data**2
    return Nelbo(torch.addcmul(nll, weight, divergence, value=1 / scale), nll, divergence, weight)


def check_kl_scaling(kl_scaling: str) -> None:
    """Raise ValueError unless it is one."""
    if kl_scaling not in get_args(KLScaling):
        raise ValueError(f"`kl_scaling` must be 'elbo' or 'dissertation', got {kl_scaling!r}")
