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

__all__ = [
    "drawn",
    "drawn_from_factors",
    "kl_alongside",
    "normal_sum",
    "refuse_second_derivatives",
    "spread",
    "sum_of_squares",
]

Gaussian = tuple[float, float]
"""Mean and standard deviation."""

MOST_FACTORS = 4
"""Rank up to which the kernel holds its sums in registers."""

Request = tuple[Mapping[object, Gaussian], dict[object, Tensor]]
"""The priors asked for, and the KLs found."""

_asked: ContextVar[Request | None] = ContextVar("asked", default=None)
_traced: list[Request] = []
"""As `_asked`, while a compiler traces the code: it cannot follow a ContextVar."""


@contextmanager
def kl_alongside(priors: Mapping[object, Gaussian]) -> Iterator[dict[object, Tensor]]:
    """Collect the KL of every posterior in `priors` that uses `drawn` or `spread` inside the block.

    Args:
        priors: mean and standard deviation of a normal prior, by posterior.

    Yields:
        The KLs found so far, by posterior; those that were not used are absent.
    """
    found: dict[object, Tensor] = {}
    if torch.compiler.is_compiling():
        _traced.append((priors, found))
        try:
            yield found
        finally:
            _traced.pop()
        return
    token = _asked.set((priors, found))
    try:
        yield found
    finally:
        _asked.reset(token)


def _request() -> Request | None:
    if torch.compiler.is_compiling():
        return _traced[-1] if _traced else None
    return _asked.get()


def drawn(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`loc + exp(log_std) * noise`; the first draw of a posterior also leaves its KL, where somebody asked for it."""
    prior = _wanted(posterior, loc, log_std)
    if prior is None:
        return torch.addcmul(loc, log_std.exp().to(loc.dtype), normal_like(loc))
    if _has_kernel(loc):
        return _left(posterior, _DrawnOnCuda.apply(loc, log_std, prior, _compute_type(loc)))
    return _left(posterior, _Drawn.apply(loc, log_std, prior))


def drawn_from_factors(posterior: object, loc: Tensor, log_in: Tensor, log_out: Tensor) -> Tensor | None:
    """As `drawn`, for standard deviations `exp(log_out) exp(log_in)^T` that are never stored.

    Returns:
        None where there is no kernel for it, or nobody asked for the KL: then `drawn` is the way.
    """
    small = log_in.shape[1] <= MOST_FACTORS
    prior = _wanted(posterior, loc, log_in) if small and _has_kernel(loc) else None
    if prior is None:
        return None
    return _left(posterior, _TiedOnCuda.apply(loc, log_in.exp(), log_out.exp(), prior, _compute_type(loc)))


def spread(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`exp(2 log_std)`; the first call of a posterior also leaves its KL, where somebody asked for it.

    Not in compiled code, which would store the variance where the compiler computes it again.
    """
    prior = None if torch.compiler.is_compiling() else _wanted(posterior, loc, log_std)
    if prior is None:
        return (2 * log_std).exp()
    return _left(posterior, _Spread.apply(loc, log_std, prior))


def _wanted(posterior: object, loc: Tensor, log_std: Tensor) -> Gaussian | None:
    """The prior of a posterior whose KL is wanted now."""
    asked = _request()
    if asked is None or posterior in asked[1] or not _may_join(loc, log_std):
        return None
    return asked[0].get(posterior)


def _has_kernel(loc: Tensor) -> bool:
    return loc.is_cuda and loc.dtype == torch.float32


def _compute_type(loc: Tensor) -> torch.dtype:
    """What the weight is used in: autocast's type, so that nothing need be converted later."""
    kind = loc.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else loc.dtype


def _left(posterior: object, results: Any) -> Tensor:
    """Leave the KL, and return the other result."""
    asked = _request()
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
        and not torch._C._are_functorch_transforms_active()
        and (torch.compiler.is_compiling() or not _checkpointed())
    )


def _checkpointed() -> bool:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)  # pyright: ignore[reportAttributeAccessIssue]
    return hooks is not None


def normal_sum(loc: Tensor, log_std: Tensor, variances: Tensor, prior: Gaussian) -> Tensor:
    """The KL from a normal prior, summed over all weights, from the sum of their variances."""
    squares = sum_of_squares(loc - prior[0] if prior[0] else loc)
    constant = loc.numel() * (math.log(prior[1]) - 0.5)
    return 0.5 * prior[1] ** -2 * (squares + variances) - _sum(log_std) + constant


def sum_of_squares(x: Tensor) -> Tensor:
    """`sum x^2`, as a dot product or, for a compiler, row by row: such a loop it joins to others over the same rows."""
    return _sum(x.square()) if torch.compiler.is_compiling() else x.flatten().dot(x.flatten())


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1).sum() if torch.compiler.is_compiling() and x.ndim else x.sum()


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
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian) -> tuple[Tensor, Tensor]:
        std, noise = log_std.exp(), normal_like(loc)
        ctx.save_for_backward(loc, std, noise)
        ctx.prior = prior
        return torch.addcmul(loc, std, noise), normal_sum(loc, log_std, sum_of_squares(std), prior)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (loc, std, noise), (by_weight, by_kl) = ctx.saved_tensors, gradients
        pull = by_kl * ctx.prior[1] ** -2
        by_log_std = (by_weight * noise).addcmul_(std, pull).mul_(std).sub_(by_kl)
        by_loc = torch.addcmul(by_weight, loc - ctx.prior[0] if ctx.prior[0] else loc, pull)
        return by_loc, by_log_std, None


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
        return draw(loc, log_std, seed, prior, dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        from bayeslim.cuda.draw import draw_backward

        (by_weight, by_kl), (loc, log_std, seed) = gradients, ctx.saved_tensors
        by_loc, by_log_std = draw_backward(by_weight, by_kl, loc, log_std, seed, ctx.prior)
        return by_loc, by_log_std, None, None


class _TiedOnCuda(torch.autograd.Function):
    """Ditto, for standard deviations of low rank, which are computed again as well."""

    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, u: Tensor, v: Tensor, prior: Gaussian, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        from bayeslim.cuda.tied_draw import tied_draw

        seed = torch.randint(2**62, (), device=loc.device)
        ctx.save_for_backward(loc, u, v, seed)
        ctx.prior = prior
        weight, divergence = tied_draw(loc.flatten(1), u, v, seed, prior, dtype)
        return weight.view(loc.shape), divergence

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        from bayeslim.cuda.tied_draw import tied_draw_backward

        (by_weight, by_kl), (loc, u, v, seed) = gradients, ctx.saved_tensors
        by_loc, by_u, by_v = tied_draw_backward(by_weight.flatten(1), by_kl, loc.flatten(1), u, v, seed, ctx.prior)
        return by_loc.view(loc.shape), by_u, by_v, None, None
