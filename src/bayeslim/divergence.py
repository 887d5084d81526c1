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
    mean, kept = posterior.mean(), posterior.kept()
    if kept is not None:
        return (prior.kl(_full(mean), _full(posterior.variance())) * kept).sum() + posterior.total_correlation()
    return prior.total(_full(mean), _full(posterior.log_std())) + posterior.total_correlation()


def _full(tensor: Tensor) -> Tensor:
    """In float32 at least: sums over many weights need it."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
