"""What linear layers draw in eager training on a CPU: one function for draw, product and KL.

Gradients are completed where they were written: a step of a network whose weights do not fit the cache spends much of
its time on writing to memory that it has not used just before. Second derivatives are refused, as in `joint_draw`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.first_derivatives import refuse_second_derivatives
from bayeslim.joint_draw import Gaussian, distance, may_join, normal_kl_of_sums, requested, sum_of_squares
from bayeslim.noise import normal_like

__all__ = ["VARIANCE_FLOOR", "draw_outputs", "draw_weights"]

VARIANCE_FLOOR = 1e-16
"""Below this an output is deterministic to float precision; it keeps sqrt differentiable at zero."""


def draw_weights(posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """`x (loc + exp(log_std) * noise)^T + bias`; the first use of a posterior leaves its KL, where somebody asked.

    Returns:
        None where plain operations are the way: outside of an objective, where second derivatives may be wanted, in
        compiled code, on CUDA and under autocast.
    """
    return _drawn(_ByWeights, posterior, loc, log_std, x, bias)


def draw_outputs(posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None) -> Tensor | None:
    """`x loc^T + bias + sqrt(x^2 exp(2 log_std)^T) * noise`, otherwise as `draw_weights`."""
    return _drawn(_ByOutputs, posterior, loc, log_std, x, bias)


def _drawn(
    way: type[_ByWeights | _ByOutputs],
    posterior: object,
    loc: Tensor,
    log_std: Tensor,
    x: Tensor,
    bias: Tensor | None,
) -> Tensor | None:
    asked = None if torch.compiler.is_compiling() else requested()
    if asked is None or x.device.type != "cpu" or x.ndim < 2 or x.dtype != loc.dtype:
        return None
    if torch.is_autocast_enabled("cpu") or not may_join(loc, log_std):
        return None
    prior = None if posterior in asked.found else asked.priors.get(posterior)
    output: Any = way.apply(x if x.ndim == 2 else x.flatten(0, -2), loc, log_std, bias, prior)
    if prior is not None:
        output, asked.found[posterior] = output
    return output if x.ndim == 2 else output.unflatten(0, x.shape[:-1])


class _ByWeights(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None, prior: Gaussian | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        std, noise = log_std.exp(), normal_like(loc)
        weight = torch.addcmul(loc, std, noise)
        ctx.save_for_backward(x, loc, std, noise, weight if ctx.needs_input_grad[0] else None)
        ctx.prior = prior
        output = F.linear(x, weight, bias)
        return output if prior is None else (output, _kl(prior, loc, log_std, sum_of_squares(std)))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (x, loc, std, noise, weight), by_output = ctx.saved_tensors, gradients[0]
        by_x = None if weight is None else torch.mm(by_output, weight)
        by_loc = torch.mm(by_output.T, x)
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
        output = F.linear(x, loc, bias)
        square, variance = x.square(), (2 * log_std).exp_()
        std, noise = torch.mm(square, variance.T).add_(VARIANCE_FLOOR).sqrt_(), normal_like(output)
        output.addcmul_(std, noise)
        ctx.save_for_backward(x, square, loc, variance, noise.div_(std))
        ctx.prior = prior
        return output if prior is None else (output, _kl(prior, loc, log_std, variance.sum()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (x, square, loc, variance, noise_per_std), by_output = ctx.saved_tensors, gradients[0]
        twice_by_variance = by_output * noise_per_std
        by_x = None
        if ctx.needs_input_grad[0]:
            by_x = torch.mm(by_output, loc).addcmul_(x, torch.mm(twice_by_variance, variance))
        by_loc, by_log_std = torch.mm(by_output.T, x), torch.mm(twice_by_variance.T, square)
        if ctx.prior is None:
            by_log_std.mul_(variance)
        else:
            by_kl, pull = gradients[1], _pull(ctx.prior, gradients[1])
            torch.addcmul(-by_kl, by_log_std.add_(pull), variance, out=by_log_std)
            by_loc.add_(distance(loc, ctx.prior), alpha=pull)
        return by_x, by_loc, by_log_std, by_output.sum(0) if ctx.needs_input_grad[3] else None, None


def _kl(prior: Gaussian, loc: Tensor, log_std: Tensor, variances: Tensor) -> Tensor:
    """Of floats: operations on tensors that hold one number take ten times as long."""
    sums = sum_of_squares(distance(loc, prior)).item(), variances.item(), log_std.sum().item()
    return loc.new_tensor(normal_kl_of_sums(*sums, loc.numel(), prior))


def _pull(prior: Gaussian, by_kl: Tensor) -> float:
    """The slope of the KL by a mean, per distance from that of the prior."""
    return by_kl.item() * prior[1] ** -2
