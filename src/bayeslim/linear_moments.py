"""Mean and variance of a linear layer's outputs in eager training on a CPU: one function for both, and the KL.

As in `linear_draw`, gradients are completed where they were written, and second derivatives are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.first_derivatives import refuse_second_derivatives
from bayeslim.joint_draw import Gaussian, exp_of
from bayeslim.linear_draw import complete_, in_one_function, kl_of, of_two_products
from bayeslim.products import product

__all__ = ["moments_of_gaussians", "moments_of_vectors"]


def moments_of_vectors(
    posterior: object, loc: Tensor, log_std: Tensor, x: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """`x loc^T + bias` and `x^2 exp(2 log_std)^T`; the first use of a posterior leaves its KL, where somebody asked.

    Returns:
        None where plain operations are the way, as for `linear_draw.draw_weights`.
    """
    found = in_one_function(_OfVectors, posterior, loc, log_std, (x,), bias)
    return None if found is None else (found[0], found[1])


def moments_of_gaussians(
    posterior: object, loc: Tensor, log_std: Tensor, mean: Tensor, variance: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """The same for inputs with a variance `v` of their own, which adds `v (loc^2 + exp(2 log_std))^T`."""
    found = in_one_function(_OfGaussians, posterior, loc, log_std, (mean, variance), bias)
    return None if found is None else (found[0], found[1])


class _OfVectors(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, loc: Tensor, log_std: Tensor, bias: Tensor | None, prior: Gaussian | None
    ) -> tuple[Tensor, ...]:
        square, variance = x.square(), exp_of(log_std, times=2)
        ctx.save_for_backward(x, square, loc, variance)
        ctx.prior = prior
        moments = product(x, loc, bias), product(square, variance)
        return moments if prior is None else (*moments, kl_of(prior, loc, log_std, variance.sum()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        return of_two_products(ctx, ctx.saved_tensors, gradients[0], 2 * gradients[1], gradients[-1])


class _OfGaussians(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        mean: Tensor,
        variance: Tensor,
        loc: Tensor,
        log_std: Tensor,
        bias: Tensor | None,
        prior: Gaussian | None,
    ) -> tuple[Tensor, ...]:
        square, weight_variance = mean.square(), exp_of(log_std, times=2)
        second = torch.addcmul(weight_variance, loc, loc)
        ctx.save_for_backward(mean, square, variance, loc, weight_variance, second)
        ctx.prior = prior
        spread = product(variance, second).add_(product(square, weight_variance))
        moments = product(mean, loc, bias), spread
        return moments if prior is None else (*moments, kl_of(prior, loc, log_std, weight_variance.sum()))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivatives()
        (mean, square, variance, loc, weight_variance, second), (by_mean, by_spread) = ctx.saved_tensors, gradients[:2]
        by_input = by_variance = None
        if any(ctx.needs_input_grad[:2]):
            by_square = product(by_spread, weight_variance.T)
            by_input = product(by_mean, loc.T).addcmul_(mean, by_square, value=2)
            by_variance = product(by_spread, second.T)
        by_second = product(by_spread.T, variance.T)
        by_loc = product(by_mean.T, mean.T).addcmul_(loc, by_second, value=2)
        by_log_std = by_second.add_(product(by_spread.T, square.T)).mul_(2)
        complete_(by_loc, by_log_std, loc, weight_variance, ctx.prior, gradients[-1])
        by_bias = by_mean.sum(0) if ctx.needs_input_grad[4] else None
        return by_input, by_variance, by_loc, by_log_std, by_bias, None
