"""The KL divergence between any posterior and any prior of the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bayeslim.kernels import normal_kl_sum
from bayeslim.posteriors.base import Posterior, full
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.posteriors.multiplicative import Multiplicative
from bayeslim.priors.base import Prior
from bayeslim.runtime.swapping import swapped

__all__ = ["is_sharded", "kl_divergence"]


def kl_divergence(posterior: Posterior, prior: Prior) -> Tensor:
    r"""`KL(q || prod_i p_i) = sum_i KL(q_i || p_i) + TC(q)`, summed over all weights, in nats.

    The identity splits the KL to a factorised prior into marginal terms, which the prior knows, and
    the total correlation, which the posterior knows. No pair needs code of its own. Pruned weights are constants and
    take no part. Of parameters that are sharded over processes it is the whole KL, for all of which each must call.

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
    facts = posterior.facts()
    plain = not (facts.unknown or hasattr(facts.loc, "device_mesh"))
    if not plain and is_sharded(posterior):
        return _over_shards(posterior, prior)
    if plain and facts.mask is None:  # independent weights
        loc, log_std = facts.loc, posterior.log_std()
        wide = loc.dtype.itemsize >= 4 and loc.dtype == log_std.dtype
        return prior.total(loc, log_std) if wide else prior.total(full(loc), full(log_std))
    mean, kept, normal = posterior.mean(), posterior.kept(), prior.as_normal(posterior)
    if plain and facts.mask is not None and normal is not None:
        return normal_kl_sum(full(mean), full(posterior.log_std()), normal, facts.mask)
    if kept is not None:
        marginals = prior.kl(full(mean), _finite_variance(full(posterior.log_std())))
        return (marginals * kept).sum() + posterior.total_correlation()
    return prior.total(full(mean), full(posterior.log_std())) + posterior.total_correlation()


def _finite_variance(log_std: Tensor) -> Tensor:
    """Variances, none beyond the type's range: there the gradient by the scale would be zero times infinity."""
    return (2 * log_std.clamp_max(0.499 * math.log(torch.finfo(log_std.dtype).max))).exp()


def is_sharded(module: nn.Module) -> bool:
    """Whether parameters of `module` are spread over processes (`DTensor`, whose import takes most of a second).

    Example:
        >>> is_sharded(nn.Linear(2, 2))
        False
    """
    for parameter in module._parameters.values():  # `parameters()` takes several times as long, and this is asked often
        if hasattr(parameter, "device_mesh"):
            return True
    return any(is_sharded(child) for child in module._modules.values() if child is not None)


def _over_shards(posterior: Posterior, prior: Prior) -> Tensor:
    """The whole KL, its gradient on the shards and counted once.

    Where weights have parameters of their own, each process sums over its shard, and the sums are added. Else one has
    all parameters of the posterior for a moment, and again in the backward pass.
    """
    from torch.distributed.tensor import DTensor, Partial

    first: Any = next(posterior.parameters())
    apart = isinstance(posterior, MeanField | Multiplicative) and not any(buffer.ndim for buffer in prior.buffers())
    if not apart:

        def whole() -> Tensor:
            with _parameters_as(posterior, lambda parameter: parameter.full_tensor()):
                return kl_divergence(posterior, prior)

        return checkpoint(whole, use_reentrant=False, preserve_rng_state=False)
    with _parameters_as(posterior, lambda parameter: parameter.to_local()):
        if posterior.mean().numel():
            own = kl_divergence(posterior, prior)
        else:  # a shard without weights, which no prior can read the fan-in from: 0, and gradients without weights
            own = torch.stack([parameter.sum() for parameter in posterior.parameters()]).sum()
    return DTensor.from_local(own, first.device_mesh, [Partial()]).full_tensor()


def _parameters_as(module: nn.Module, change: Callable[[Any], Tensor]) -> AbstractContextManager[None]:
    """Put `change` of every parameter in its place for a while."""
    return swapped(
        (part, name, change(parameter))
        for part in module.modules()
        for name, parameter in part.named_parameters(recurse=False)
    )
