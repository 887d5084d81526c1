"""Training on a CPU: a draw or the moments of a linear layer, its product and its KL as one function.

Gradients are completed where they were written: a step of a network whose weights do not fit the cache spends much of
its time on writing to memory that it has not used just before. Second derivatives are refused: the tensors kept for
the first ones do not know what they were computed from.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import Function

from bayeslim.kernels.context import Context, NormalPrior, refuse_second_derivatives
from bayeslim.kernels.facts import LOG_OF_NOTHING, Facts
from bayeslim.kernels.noise import MANY, normal_of_table
from bayeslim.kernels.normal_kl import add_slopes_, distance, kl_of_sums
from bayeslim.kernels.onednn import LARGE, product_by_onednn
from bayeslim.kernels.reference import VARIANCE_FLOOR

__all__ = ["FUNCTIONS", "run", "supports"]


OF_OUTPUTS = ("draw_by_output", "output_moments", "propagate")
"""Kernels that need no weight."""


class Task(NamedTuple):
    """What a function is told besides tensors."""

    logs: bool
    """Whether the spread is given as logs of standard deviations."""
    prior: NormalPrior | None
    """That of the KL, where it is wanted."""
    mask: Tensor | None
    """1 for the weights that count in the KL; None if all do."""


def supports(kernel: str, q: object, facts: Facts, op: Any, inputs: tuple[Tensor, ...], context: Context) -> str | None:
    """None if this is a way for a weight, or for a layer with these inputs; else the reason why not."""
    if context.device != "cpu" or context.compiling or context.recorded:
        return "it is for eager code on a CPU"
    if context.collection is None or not torch.is_grad_enabled():
        return "outside of the objective second derivatives may be wanted, or none at all"
    if context.transformed or context.recomputed or context.autocast is not None:
        return "not inside torch's transforms, activation checkpointing or autocast"
    if facts.loc.dtype not in (torch.float32, torch.float64) or not facts.loc.is_contiguous():
        return "weights must be contiguous, in float32 or float64"
    if facts.factors is not None and kernel in OF_OUTPUTS:
        return "scales of low rank need fewer products"
    if op is not None and not op.is_product:
        return "it is for linear layers"
    if any(
        type(x) is not Tensor or x.ndim < 2 or x.dtype != facts.loc.dtype or x.layout != torch.strided for x in inputs
    ):
        return "inputs must be dense rows in the type of the weight"
    return None


def run(
    kernel: str, q: object, facts: Facts, inputs: tuple[Tensor, ...], bias: Tensor | None, context: Context
) -> tuple[Tensor, ...]:
    """Compute a kernel, and leave the KL of `q` where it is wanted; not that of pruned scales of low rank.

    Args:
        kernel: a name in `FUNCTIONS`.
        q: the posterior, as the collection knows it.
        facts: what it states.
        inputs: of the layer, (..., in); none to draw a weight or to ask for its variance.
        bias: point estimate or None.
        context: with what the objective collects.
    """
    collection: Any = context.collection
    loc, logs, prior = facts.loc, facts.log_std is not None, collection.prior_of(q)
    spread = (facts.log_std or facts.std)().to(loc.dtype)  # pyright: ignore[reportOptionalCall]
    if facts.mask is not None:
        loc, prior = loc * facts.mask, prior if logs else None
        spread = spread.masked_fill(facts.mask == 0, LOG_OF_NOTHING) if logs else spread * facts.mask
    flat = bool(inputs) and inputs[0].ndim > 2
    rows = [part.flatten(0, -2) for part in inputs] if flat else inputs
    results = FUNCTIONS[kernel].apply(Task(logs, prior, facts.mask), loc, spread, bias, *rows)
    if prior is not None:
        *results, collection.found[q] = results
    return tuple(part.unflatten(0, inputs[0].shape[:-1]) for part in results) if flat else tuple(results)


def _kl(task: Task, loc: Tensor, variances: Tensor, spread: Tensor) -> tuple[Tensor, ...]:
    """The KL from the sum of variances, if it is wanted.

    It is computed of floats: operations on tensors that hold one number take ten times as long.
    """
    if task.prior is None:
        return ()
    logs, away = spread if task.logs else spread.log(), distance(loc, task.prior)
    count = loc.numel()
    if task.mask is not None:
        logs, away, count = logs * task.mask, away * task.mask, task.mask.sum().item()
    found = away.flatten().dot(away.flatten()).item(), variances.item(), logs.sum().item()
    return (loc.new_tensor(kl_of_sums(*found, count, task.prior)),)


def _exp(log: Tensor, times: float = 1.0) -> Tensor:
    """`exp(times * log)` to 1e-6 of it in float32, to rounding in float64; 16 bits are too few for it.

    A power of two: torch's `exp` on a CPU takes two to three times as long where that is not Intel's.
    """
    return (log * (times / math.log(2))).exp2_()


def _normal(like: Tensor) -> Tensor:
    """Normal numbers, many float32 ones out of a table."""
    many = like.numel() >= MANY and like.dtype == torch.float32
    return normal_of_table(like.shape) if many else torch.randn_like(like)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x weight^T + bias`, a large one by the library that is the faster one on this processor."""
    large = x.shape[0] * weight.numel() >= LARGE
    return product_by_onednn(x, weight, bias) if large else F.linear(x, weight, bias)


def _completed(
    ctx: Any, by_loc: Tensor, by_log_std: Tensor, loc: Tensor, factor: Tensor, rest: Any, by_kl: Tensor
) -> Tensor:
    """Add the gradient of the KL to `by_loc`, and return the gradient by the spread, in place of `by_log_std`.

    Args:
        ctx: of the function, with its task.
        by_loc: the gradient of everything else by the means.
        by_log_std: that by the logs of the standard deviations, divided by `factor`.
        loc: means.
        factor: standard deviations, or variances.
        rest: the variance divided by `factor`: a tensor, or 1.
        by_kl: the gradient by the KL, if there is one.
    """
    logs, prior, _ = ctx.task
    if prior is not None:
        add_slopes_(by_loc, by_log_std, loc, factor, rest, prior, by_kl.item())
        return by_log_std if logs else by_log_std.div_(_std(factor, rest))
    if logs:
        return by_log_std.mul_(factor)
    return by_log_std if torch.is_tensor(rest) else by_log_std.mul_(_std(factor, rest))


def _std(factor: Tensor, rest: Any) -> Tensor:
    return rest if torch.is_tensor(rest) else factor.sqrt()


def _by_two_products(ctx: Any, by_mean: Tensor, twice_by_spread: Tensor, by_kl: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients by those of `x loc^T + bias` and, twice, of `x^2 variance^T`."""
    x, square, loc, variance, *_ = ctx.saved_tensors
    by_x = None
    if ctx.needs_input_grad[4]:
        by_x = _product(by_mean, loc.T).addcmul_(x, _product(twice_by_spread, variance.T))
    by_loc = _product(by_mean.T, x.T)
    by_spread = _completed(ctx, by_loc, _product(twice_by_spread.T, square.T), loc, variance, 1, by_kl)
    return None, by_loc, by_spread, by_mean.sum(0) if ctx.needs_input_grad[3] else None, by_x


class _DrawWeight(Function):
    """`loc + std * noise`; noise and deviations are kept, since the CPU takes long to draw them again."""

    @staticmethod
    def forward(ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: None) -> tuple[Tensor, ...]:
        ctx.task, noise = task, _normal(loc)
        std = _exp(spread) if task.logs else spread
        ctx.save_for_backward(loc, std, noise)
        return torch.addcmul(loc, std, noise), *_kl(task, loc, std.flatten().dot(std.flatten()), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        loc, std, noise = ctx.saved_tensors
        by_loc = gradients[0].clone()
        return None, by_loc, _completed(ctx, by_loc, by_loc * noise, loc, std, std, gradients[-1]), None


class _WeightVariance(Function):
    """`std^2`."""

    @staticmethod
    def forward(ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: None) -> tuple[Tensor, ...]:
        ctx.task, variance = task, _exp(spread, 2) if task.logs else spread.square()
        ctx.save_for_backward(loc, variance)
        return variance, *_kl(task, loc, variance.sum(), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        loc, variance = ctx.saved_tensors
        by_loc = torch.zeros_like(loc)
        return None, by_loc, _completed(ctx, by_loc, 2 * gradients[0], loc, variance, 1, gradients[-1]), None


class _DrawByWeight(Function):
    """`x (loc + std * noise)^T + bias`."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: Tensor | None, x: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.task, noise = task, _normal(loc)
        std = _exp(spread) if task.logs else spread
        weight = torch.addcmul(loc, std, noise)
        ctx.save_for_backward(x, loc, std, noise, weight if ctx.needs_input_grad[4] else None)
        return _product(x, weight, bias), *_kl(task, loc, std.flatten().dot(std.flatten()), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (x, loc, std, noise, weight), by_output = ctx.saved_tensors, gradients[0]
        by_x = None if weight is None else _product(by_output, weight.T)
        by_loc = _product(by_output.T, x.T)
        by_spread = _completed(ctx, by_loc, by_loc * noise, loc, std, std, gradients[-1])
        return None, by_loc, by_spread, by_output.sum(0) if ctx.needs_input_grad[3] else None, by_x


class _DrawByOutput(Function):
    """`x loc^T + bias + sqrt(x^2 variance^T) * noise`."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: Tensor | None, x: Tensor
    ) -> tuple[Tensor, ...]:
        output = _product(x, loc, bias)
        ctx.task, square, variance = task, x.square(), _exp(spread, 2) if task.logs else spread.square()
        std, noise = _product(square, variance).add_(VARIANCE_FLOOR).sqrt_(), _normal(output)
        output.addcmul_(std, noise)
        ctx.save_for_backward(x, square, loc, variance, noise.div_(std))
        return output, *_kl(task, loc, variance.sum(), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        return _by_two_products(ctx, gradients[0], gradients[0] * ctx.saved_tensors[-1], gradients[-1])


class _OutputMoments(Function):
    """`x loc^T + bias` and `x^2 variance^T`."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: Tensor | None, x: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.task, square, variance = task, x.square(), _exp(spread, 2) if task.logs else spread.square()
        ctx.save_for_backward(x, square, loc, variance)
        return _product(x, loc, bias), _product(square, variance), *_kl(task, loc, variance.sum(), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        return _by_two_products(ctx, gradients[0], 2 * gradients[1], gradients[-1])


class _Propagate(Function):
    """`mean loc^T + bias` and `mean^2 variance^T + v (loc^2 + variance)^T` for inputs of variance `v`."""

    @staticmethod
    def forward(
        ctx: Any, task: Task, loc: Tensor, spread: Tensor, bias: Tensor | None, mean: Tensor, v: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.task, square, variance = task, mean.square(), _exp(spread, 2) if task.logs else spread.square()
        second = torch.addcmul(variance, loc, loc)
        ctx.save_for_backward(mean, square, v, loc, variance, second)
        output_variance = _product(v, second).add_(_product(square, variance))
        return _product(mean, loc, bias), output_variance, *_kl(task, loc, variance.sum(), spread)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (mean, square, v, loc, variance, second), (by_mean, by_variance) = ctx.saved_tensors, gradients[:2]
        by_input = by_v = None
        if any(ctx.needs_input_grad[4:]):
            by_square = _product(by_variance, variance.T)
            by_input = _product(by_mean, loc.T).addcmul_(mean, by_square, value=2)
            by_v = _product(by_variance, second.T)
        by_second = _product(by_variance.T, v.T)
        by_loc = _product(by_mean.T, mean.T).addcmul_(loc, by_second, value=2)
        by_log_std = by_second.add_(_product(by_variance.T, square.T)).mul_(2)
        by_spread = _completed(ctx, by_loc, by_log_std, loc, variance, 1, gradients[-1])
        return None, by_loc, by_spread, by_mean.sum(0) if ctx.needs_input_grad[3] else None, by_input, by_v


FUNCTIONS: dict[str, Any] = {
    "draw_weight": _DrawWeight,
    "weight_variance": _WeightVariance,
    "draw_by_weight": _DrawByWeight,
    "draw_by_output": _DrawByOutput,
    "output_moments": _OutputMoments,
    "propagate": _Propagate,
}
"""What each kernel is here: of a task, the means, the spread, a bias and rows."""
