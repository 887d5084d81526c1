"""Draw weights, or take their variances, and their KL in one pass over the parameters, forwards and backwards.

The objective needs both for every weight, and each alone reads all parameters again. Inside `kl_alongside` a posterior
that is used leaves its KL behind at once, so that one gradient pass serves the two. Second derivatives are refused: the
tensors kept for the first ones do not know what they were computed from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from bayeslim.noise import normal_like

__all__ = ["drawn", "kl_alongside", "normal_sum", "refuse_second_derivatives", "spread"]

Gaussian = tuple[float, float]
"""Mean and standard deviation."""

_asked: ContextVar[tuple[Mapping[object, Gaussian], dict[object, Tensor]] | None] = ContextVar("asked", default=None)


@contextmanager
def kl_alongside(priors: Mapping[object, Gaussian]) -> Iterator[dict[object, Tensor]]:
    """Collect the KL of every posterior in `priors` that uses `drawn` or `spread` inside the block.

    Args:
        priors: mean and standard deviation of a normal prior, by posterior.

    Yields:
        The KLs found so far, by posterior; those that were not used are absent.
    """
    found: dict[object, Tensor] = {}
    token = _asked.set((priors, found))
    try:
        yield found
    finally:
        _asked.reset(token)


def drawn(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`loc + exp(log_std) * noise`; the first draw of a posterior also leaves its KL, where somebody asked for it."""
    prior = _wanted(posterior, loc, log_std)
    if prior is None:
        return torch.addcmul(loc, log_std.exp().to(loc.dtype), normal_like(loc))
    kind, fused = loc.device.type, loc.is_cuda and loc.dtype == torch.float32
    half = torch.get_autocast_dtype(kind) if fused and torch.is_autocast_enabled(kind) else loc.dtype
    return _left(posterior, (_DrawnOnCuda if fused else _Drawn).apply(loc, log_std, prior, half))


def spread(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`exp(2 log_std)`; the first call of a posterior also leaves its KL, where somebody asked for it."""
    prior = _wanted(posterior, loc, log_std)
    if prior is None:
        return (2 * log_std).exp()
    return _left(posterior, _Spread.apply(loc, log_std, prior))


def _wanted(posterior: object, loc: Tensor, log_std: Tensor) -> Gaussian | None:
    """The prior of a posterior whose KL is wanted now."""
    asked = None if torch.compiler.is_compiling() else _asked.get()
    if asked is None or posterior in asked[1] or not _may_join(loc, log_std):
        return None
    return asked[0].get(posterior)


def _left(posterior: object, results: Any) -> Tensor:
    """Leave the KL, and return the other result."""
    asked = _asked.get()
    assert asked is not None
    asked[1][posterior] = results[1]
    return results[0]


def _may_join(loc: Tensor, log_std: Tensor) -> bool:
    """Whether nothing looks inside the autograd functions below.

    Checkpointing (a saved-tensor hook) repeats the forward pass later, outside the block, and functorch transforms
    batch it: both take the plain way. So do half-precision parameters, whose KL must be summed in float32.
    """
    return (
        torch.is_grad_enabled()
        and loc.dtype == log_std.dtype
        and loc.dtype in (torch.float32, torch.float64)
        and loc.is_contiguous()
        and torch._C._autograd._top_saved_tensors_default_hooks(False) is None  # pyright: ignore[reportAttributeAccessIssue]
        and not torch._C._are_functorch_transforms_active()
    )


def normal_sum(loc: Tensor, log_std: Tensor, variances: Tensor, prior: Gaussian) -> Tensor:
    """The KL from a normal prior, summed over all weights, from the sum of their variances."""
    distance = (loc - prior[0] if prior[0] else loc).flatten()
    return 0.5 * prior[1] ** -2 * (distance.dot(distance) + variances) - log_std.sum() + _constant(loc, prior)


def _constant(loc: Tensor, prior: Gaussian) -> float:
    return loc.numel() * (math.log(prior[1]) - 0.5)


def refuse_second_derivatives() -> None:
    """Raise in a backward pass with `create_graph`: tensors that were kept do not know what they came from."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "weights drawn together with their KL cannot be differentiated twice: call the network and `prior.kl` "
            "outside `bl.nelbo`"
        )


class _Drawn(torch.autograd.Function):
    """Plain operations; noise and standard deviations are kept, since the CPU takes long to draw them again."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        std, noise = log_std.exp(), normal_like(loc)
        ctx.save_for_backward(loc, std, noise)
        ctx.prior = prior
        variances = std.flatten().dot(std.flatten())
        return torch.addcmul(loc, std, noise), normal_sum(loc, log_std, variances, prior)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (loc, std, noise), (by_weight, by_kl) = ctx.saved_tensors, gradients
        pull = by_kl * ctx.prior[1] ** -2
        by_log_std = (by_weight * noise).addcmul_(std, pull).mul_(std).sub_(by_kl)
        by_loc = torch.addcmul(by_weight, loc - ctx.prior[0] if ctx.prior[0] else loc, pull)
        return by_loc, by_log_std, None, None


class _Spread(torch.autograd.Function):
    """Variances and KL."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian) -> tuple[Tensor, Tensor]:
        variance = (2 * log_std).exp_()
        ctx.save_for_backward(loc, variance)
        ctx.prior = prior
        return variance, normal_sum(loc, log_std, variance.sum(), prior)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (loc, variance), (by_variance, by_kl) = ctx.saved_tensors, gradients
        pull = by_kl * ctx.prior[1] ** -2
        by_log_std = torch.add(by_variance, pull, alpha=0.5).mul_(variance).mul_(2).sub_(by_kl)
        return (loc - ctx.prior[0] if ctx.prior[0] else loc) * pull, by_log_std, None


class _DrawnOnCuda(torch.autograd.Function):
    """Two Triton kernels; the noise is drawn again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        from bayeslim.cuda.draw import draw

        seed = torch.randint(2**62, (), device=loc.device)
        ctx.save_for_backward(loc, log_std, seed)
        ctx.prior = prior
        weight, terms = draw(loc, log_std, seed, prior, dtype)
        return weight, terms.add_(_constant(loc, prior))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        from bayeslim.cuda.draw import draw_backward

        (by_weight, by_kl), (loc, log_std, seed) = gradients, ctx.saved_tensors
        by_loc, by_log_std = draw_backward(by_weight, by_kl, loc, log_std, seed, ctx.prior)
        return by_loc, by_log_std, None, None
