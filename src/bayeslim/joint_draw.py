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
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayeslim.first_derivatives import refuse_second_derivatives
from bayeslim.noise import normal_like

__all__ = [
    "Gaussian",
    "distance",
    "drawn",
    "drawn_from_factors",
    "drawn_product",
    "exp_of",
    "kl_alongside",
    "may_join",
    "normal_kl_of_sums",
    "normal_sum",
    "requested",
    "spread",
    "sum_of_squares",
]

Gaussian = tuple[float, float]
"""Mean and standard deviation."""

MOST_FACTORS = 4
"""Rank up to which the kernel holds its sums in registers."""


@dataclass(frozen=True)
class Request:
    """Somebody's wish for KLs."""

    priors: Mapping[object, Gaussian]
    found: dict[object, Tensor] = field(default_factory=dict)
    seeds: dict[torch.device, list[Tensor]] = field(default_factory=dict)
    rows_of_ones: dict[tuple[int, torch.dtype, torch.device], Tensor] = field(default_factory=dict)

    def seed(self, device: torch.device) -> Tensor:
        """A random number for a kernel, and another that aligns them; one launch draws those of all posteriors."""
        if device not in self.seeds:
            self.seeds[device] = list(torch.randint(2**62, (len(self.priors), 2), device=device).unbind())
        return self.seeds[device].pop()

    def ones(self, x: Tensor) -> Tensor:
        """(1, rows) ones in the type of `x` (rows, in), the same for all layers of a batch."""
        kind = len(x), x.dtype, x.device
        if kind not in self.rows_of_ones:
            self.rows_of_ones[kind] = x.new_ones(1, len(x))
        return self.rows_of_ones[kind]


_asked: ContextVar[Request | None] = ContextVar("asked", default=None)
_traced: list[Request] = []
"""As `_asked`, while a compiler traces the code: it cannot follow a ContextVar."""


@contextmanager
def kl_alongside(priors: Mapping[object, Gaussian]) -> Iterator[dict[object, Tensor]]:
    """Collect the KL of every posterior in `priors` that is drawn or asked for variances inside the block.

    Args:
        priors: mean and standard deviation of a normal prior, by posterior.

    Yields:
        The KLs found so far, by posterior, whole or in parts to be summed; those that were not used are absent.
    """
    request = Request(priors)
    if torch.compiler.is_compiling():
        _traced.append(request)
        try:
            yield request.found
        finally:
            _traced.pop()
        return
    token = _asked.set(request)
    try:
        yield request.found
    finally:
        _asked.reset(token)


def requested() -> Request | None:
    """Who asks for KLs now."""
    if torch.compiler.is_compiling():
        return _traced[-1] if _traced else None
    return _asked.get()


def drawn(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`loc + exp(log_std) * noise`; the first draw of a posterior also leaves its KL, where somebody asked for it."""
    asked = _wanted(posterior, loc, log_std)
    if asked is None:
        return torch.addcmul(loc, log_std.exp().to(loc.dtype), normal_like(loc))
    prior = asked.priors[posterior]
    if not _has_kernel(loc):
        return _left(asked, posterior, _Drawn.apply(loc, log_std, prior))
    from bayeslim.cuda.functions import Drawn

    return _left(asked, posterior, Drawn.apply(loc, log_std, asked.seed(loc.device), prior, _compute_type(loc)))


def drawn_from_factors(posterior: object, loc: Tensor, log_in: Tensor, log_out: Tensor) -> Tensor | None:
    """As `drawn`, for standard deviations `exp(log_out) exp(log_in)^T` that are never stored.

    Returns:
        None where there is no kernel for it, or nobody asked for the KL: then `drawn` is the way.
    """
    small = log_in.shape[1] <= MOST_FACTORS
    asked = _wanted(posterior, loc, log_in) if small and _has_kernel(loc) else None
    if asked is None:
        return None
    from bayeslim.cuda.functions import TiedDrawn

    arguments = asked.seed(loc.device), asked.priors[posterior], _compute_type(loc)
    return _left(asked, posterior, TiedDrawn.apply(loc, log_in.exp(), log_out.exp(), *arguments))


def drawn_product(posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """`x W^T + bias` for a weight drawn as by `drawn`, in one function that takes less memory in the backward pass.

    Returns:
        None where there is no such function: outside the 16 bits of autocast on CUDA (in float32 the products that it
        sums by may be rounded), in compiled code, which needs none, and where nobody asked for the KL.
    """
    dtype = _compute_type(loc)
    fits = _has_kernel(loc) and dtype.itemsize == 2 and x.dtype in (dtype, torch.float32) and x.ndim > 1
    if not fits or torch.compiler.is_compiling():
        return None
    asked = _wanted(posterior, loc, log_std)
    if asked is None:
        return None
    from bayeslim.cuda.functions import DrawnProduct

    rows = x.to(dtype) if x.ndim == 2 else x.to(dtype).flatten(0, -2)
    arguments = rows, asked.ones(rows), bias, asked.seed(loc.device), asked.priors[posterior]
    output = _left(asked, posterior, DrawnProduct.apply(loc, log_std, *arguments))
    return output if x.ndim == 2 else output.unflatten(0, x.shape[:-1])


def spread(posterior: object, loc: Tensor, log_std: Tensor) -> Tensor:
    """`exp(2 log_std)`; the first call of a posterior also leaves its KL, where somebody asked for it.

    Not in compiled code, which would store the variance where the compiler computes it again.
    """
    asked = None if torch.compiler.is_compiling() else _wanted(posterior, loc, log_std)
    if asked is None:
        return (2 * log_std).exp()
    return _left(asked, posterior, _Spread.apply(loc, log_std, asked.priors[posterior]))


def _wanted(posterior: object, loc: Tensor, log_std: Tensor) -> Request | None:
    """Who wants the KL of a posterior now."""
    asked = requested()
    if asked is None or posterior in asked.found or posterior not in asked.priors or not may_join(loc, log_std):
        return None
    return asked


def _has_kernel(loc: Tensor) -> bool:
    return loc.is_cuda and loc.dtype == torch.float32


def _compute_type(loc: Tensor) -> torch.dtype:
    """What the weight is used in: autocast's type, so that nothing need be converted later."""
    kind = loc.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else loc.dtype


def _left(asked: Request, posterior: object, results: Any) -> Tensor:
    """Leave the KL, and return the other result."""
    asked.found[posterior] = results[1]
    return results[0]


def may_join(loc: Tensor, log_std: Tensor) -> bool:
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
    squares = sum_of_squares(distance(loc, prior))
    return normal_kl_of_sums(squares, variances, _sum(log_std), loc.numel(), prior)


def normal_kl_of_sums(squares: Any, variances: Any, logs: Any, count: int, prior: Gaussian) -> Any:
    """The same from the sums of squared distances from the prior's mean, of variances and of log standard deviations.

    They are tensors or floats.
    """
    return 0.5 * prior[1] ** -2 * (squares + variances) - logs + count * (math.log(prior[1]) - 0.5)


def exp_of(log: Tensor, times: float = 1.0) -> Tensor:
    """`exp(times * log)` to 1e-6 of it in float32, to rounding in float64; 16 bits are too few for it.

    A power of two: torch's `exp` on a CPU takes two to three times as long where that is not Intel's.
    """
    return (log * (times / math.log(2))).exp2_()


def distance(loc: Tensor, prior: Gaussian) -> Tensor:
    """From the prior's mean, without a copy where that is 0."""
    return loc - prior[0] if prior[0] else loc


def sum_of_squares(x: Tensor) -> Tensor:
    """`sum x^2`, as a dot product or, for a compiler, row by row: such a loop it joins to others over the same rows."""
    return _sum(x.square()) if torch.compiler.is_compiling() else x.flatten().dot(x.flatten())


def _sum(x: Tensor) -> Tensor:
    return x.sum(-1).sum() if torch.compiler.is_compiling() and x.ndim else x.sum()


class _Drawn(torch.autograd.Function):
    """Plain operations; noise and standard deviations are kept, since the CPU takes long to draw them again."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian) -> tuple[Tensor, Tensor]:
        std, noise = exp_of(log_std), normal_like(loc)
        ctx.save_for_backward(loc, std, noise)
        ctx.prior = prior
        return torch.addcmul(loc, std, noise), normal_sum(loc, log_std, sum_of_squares(std), prior)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (loc, std, noise), (by_weight, by_kl) = ctx.saved_tensors, gradients
        pull = by_kl * ctx.prior[1] ** -2
        by_log_std = (by_weight * noise).addcmul_(std, pull).mul_(std).sub_(by_kl)
        by_loc = torch.addcmul(by_weight, distance(loc, ctx.prior), pull)
        return by_loc, by_log_std, None


class _Spread(torch.autograd.Function):
    """Variances and KL."""

    @staticmethod
    def forward(ctx: Any, loc: Tensor, log_std: Tensor, prior: Gaussian) -> tuple[Tensor, Tensor]:
        variance = exp_of(log_std, times=2)
        ctx.save_for_backward(loc, variance)
        ctx.prior = prior
        return variance, normal_sum(loc, log_std, variance.sum(), prior)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (loc, variance), (by_variance, by_kl) = ctx.saved_tensors, gradients
        pull = by_kl * ctx.prior[1] ** -2
        by_log_std = torch.add(by_variance, pull, alpha=0.5).mul_(variance).mul_(2).sub_(by_kl)
        return distance(loc, ctx.prior) * pull, by_log_std, None
