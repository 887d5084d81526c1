"""The KL divergence between any posterior and any prior of the library."""

from __future__ import annotations

import torch
from torch import Tensor

from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior

__all__ = ["kl_divergence"]


def kl_divergence(posterior: Posterior, prior: Prior) -> Tensor:
    r"""`KL(q || prod_i p_i) = sum_i KL(q_i || p_i) + TC(q)`, summed over all weights, in nats.

    The identity splits the KL to a factorised prior into marginal terms, which the prior knows, and
    the total correlation, which the posterior knows. No pair needs code of its own. Pruned weights are constants and
    take no part.

    Args:
        posterior: `q`, over one weight tensor.
        prior: `p`, factorised.

    Returns:
        A scalar, float32 at least.

    Example:
        >>> from bayeslim.posteriors import MeanField
        >>> from bayeslim.priors import Normal
        >>> kl_divergence(MeanField(torch.zeros(2, 2), scale=1.0), Normal(0.0, 1.0)).item()
        0.0
    """
    mean, variance = posterior.mean(), posterior.variance()
    if mean.dtype in (torch.float16, torch.bfloat16):
        mean, variance = mean.float(), variance.float()
    terms, kept = prior.kl(mean, variance), posterior.kept()
    return (terms if kept is None else terms * kept).sum() + posterior.total_correlation()
