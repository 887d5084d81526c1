"""What linear layers draw in eager training on a CPU: one function for draw, product and KL.

Gradients are completed where they were written: a step of a network whose weights do not fit the cache spends much of
its time on writing to memory that it has not used just before. Second derivatives are refused, as in `joint_draw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayeslim.first_derivatives import refuse_second_derivatives
from bayeslim.gaussian import VARIANCE_FLOOR
from bayeslim.joint_draw import Gaussian, distance, exp_of, may_join, normal_kl_of_sums, requested, sum_of_squares
from bayeslim.noise import normal_like
from bayeslim.products import product

__all__ = ["complete_", "draw_outputs", "draw_weights", "in_one_function", "kl_of", "of_two_products"]


def draw_weights(posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """`x (loc + exp(log_std) * noise)^T + bias`; the first use of a posterior leaves its KL, where somebody asked.

    Returns:
        None where plain operations are the way: outside of an objective, where second derivatives may be wanted, in
        compiled code, on CUDA and under autocast.
    """
    found = in_one_function(_ByWeights, posterior, loc, log_std, (x,), bias)
    return None if found is None else found[0]


def draw_outputs(posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """`x loc^T + bias + sqrt(x^2 exp(2 log_std)^T) * noise`, otherwise as `draw_weights`."""
    found = in_one_function(_ByOutputs, posterior, loc, log_std, (x,), bias)
    return None if found is None else found[0]


def in_one_function(
    function: Any, posterior: object, loc: Tensor, log_std: Tensor, inputs: Sequence[Tensor], bias: Tensor | None
) -> tuple[Tensor, ...] | None:
    """What an autograd function gives for rows of inputs, in their shape; its last result may be the posterior's KL.

    Args:
        function: of inputs (rows, in), `loc`, `log_std`, `bias`, and the prior where its KL is wanted.
        posterior: whose KL that is.
        loc: means of the weights.
        log_std: logs of their standard deviations.
        inputs: tensors (..., in).
        bias: point estimate or None.

    Returns:
        None as `draw_weights`.
    """
    asked, x = None if torch.compiler.is_compiling() else requested(), inputs[0]
    if asked is None or x.device.type != "cpu" or x.ndim < 2 or any(part.dtype != loc.dtype for part in inputs):
        return None
    if torch.is_autocast_enabled("cpu") or not may_join(loc, log_std):
        return None
    prior = None if posterior in asked.found else asked.priors.get(posterior)
    rows = inputs if x.ndim == 2 else [part.flatten(0, -2) for part in inputs]
    found: Any = function.apply(*rows, loc, log_std, bias, prior)
    results = found if isinstance(found, tuple) else (found,)
    if prior is not None:
        *results, asked.found[posterior] = results
    return tuple(results) if x.ndim == 2 else tuple(result.unflatten(0, x.shape[:-1]) for result in results)


class _ByWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None, prior: Gaussian | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        std, noise = exp_of(log_std), normal_like(loc)
        weight = torch.addcmul(loc, std, noise)
        ctx.save_for_backward(x, loc, std, noise, weight if ctx.needs_input_grad[0] else None)
        ctx.prior = prior
        output = product(x, weight, bias)
        return output if prior is None else (output, kl_of(prior, loc, log_std, sum_of_squares(std)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (x, loc, std, noise, weight), by_output = ctx.saved_tensors, gradients[0]
        by_x = None if weight is None else product(by_output, weight.T)
        by_loc = product(by_output.T, x.T)
        by_log_std = by_loc * noise
        if ctx.prior is None:
            by_log_std.mul_(std)
        else:
            by_kl, pull = gradients[1], _pull(ctx.prior, gradients[1])
            torch.addcmul(-by_kl, by_log_std.add_(std, alpha=pull), std, out=by_log_std)
            by_loc.add_(distance(loc, ctx.prior), alpha=pull)
        return by_x, by_loc, by_log_std, by_output.sum(0) if ctx.needs_input_grad[3] else None, None


class _ByOutputs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None, prior: Gaussian | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        output = product(x, loc, bias)
        square, variance = x.square(), exp_of(log_std, times=2)
        std, noise = product(square, variance).add_(VARIANCE_FLOOR).sqrt_(), normal_like(output)
        output.addcmul_(std, noise)
        ctx.save_for_backward(x, square, loc, variance, noise.div_(std))
        ctx.prior = prior
        return output if prior is None else (output, kl_of(prior, loc, log_std, variance.sum()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        *tensors, noise_per_std = ctx.saved_tensors
        return of_two_products(ctx, tensors, gradients[0], gradients[0] * noise_per_std, gradients[-1])


def of_two_products(
    ctx: Any, tensors: Sequence[Tensor], by_mean: Tensor, twice_by_spread: Tensor, by_kl: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of a function of `x`, `loc`, `log_std`, a bias and the prior, by those of its mean and variance.

    Args:
        ctx: of the function, with the prior.
        tensors: `x`, `x^2`, `loc` and `exp(2 log_std)`.
        by_mean: the gradient by `x loc^T + bias`.
        twice_by_spread: twice that by `x^2 exp(2 log_std)^T`.
        by_kl: that by the KL, where there is a prior.
    """
    (x, square, loc, variance), by_x = tensors, None
    if ctx.needs_input_grad[0]:
        by_x = product(by_mean, loc.T).addcmul_(x, product(twice_by_spread, variance.T))
    by_loc, by_log_std = product(by_mean.T, x.T), product(twice_by_spread.T, square.T)
    complete_(by_loc, by_log_std, loc, variance, ctx.prior, by_kl)
    return by_x, by_loc, by_log_std, by_mean.sum(0) if ctx.needs_input_grad[3] else None, None


def complete_(
    by_loc: Tensor, by_log_std: Tensor, loc: Tensor, variance: Tensor, prior: Gaussian | None, by_kl: Tensor
) -> None:
    """Complete the gradients of what a layer gave, in place, with those of the KL.

    `by_log_std` comes as twice the gradient by the variance and becomes that by the log standard deviation.
    """
    if prior is None:
        by_log_std.mul_(variance)
        return
    pull = _pull(prior, by_kl)
    torch.addcmul(-by_kl, by_log_std.add_(pull), variance, out=by_log_std)
    by_loc.add_(distance(loc, prior), alpha=pull)


def kl_of(prior: Gaussian, loc: Tensor, log_std: Tensor, variances: Tensor) -> Tensor:
    """The KL from a normal prior, of floats: operations on tensors that hold one number take ten times as long."""
    sums = sum_of_squares(distance(loc, prior)).item(), variances.item(), log_std.sum().item()
    return loc.new_tensor(normal_kl_of_sums(*sums, loc.numel(), prior))


def _pull(prior: Gaussian, by_kl: Tensor) -> float:
    """The slope of the KL by a mean, per distance from that of the prior."""
    return by_kl.item() * prior[1] ** -2
