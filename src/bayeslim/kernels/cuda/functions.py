"""The kernels of `draw` and `tied_draw` as functions with gradients; noise is drawn again in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.kernels.context import refuse_second_derivatives
from bayeslim.kernels.cuda.draw import draw, draw_backward
from bayeslim.kernels.cuda.tied_draw import tied_draw, tied_draw_backward

__all__ = ["Drawn", "DrawnProduct", "TiedDrawn"]

Prior = tuple[float, float]
"""Mean and standard deviation."""


class Drawn(torch.autograd.Function):
    """A weight and its KL."""

    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, log_std: Tensor, seed: Tensor, prior: Prior, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """See `draw`."""
        ctx.save_for_backward(loc, log_std, seed)
        ctx.prior = prior
        weight, parts = draw(loc, log_std, seed, prior, dtype)
        return weight, parts.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """See `draw_backward`."""
        refuse_second_derivatives()
        (by_weight, by_kl), (loc, log_std, seed) = gradients, ctx.saved_tensors
        return *draw_backward(by_weight, by_kl, loc, log_std, seed, ctx.prior), None, None, None


class TiedDrawn(torch.autograd.Function):
    """Ditto, for standard deviations of low rank, which are computed again as well."""

    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, u: Tensor, v: Tensor, seed: Tensor, prior: Prior, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """See `tied_draw`."""
        ctx.save_for_backward(loc, u, v, seed)
        ctx.prior = prior
        weight, divergence = tied_draw(loc.flatten(1), u, v, seed, prior, dtype)
        return weight.view(loc.shape), divergence

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """See `tied_draw_backward`."""
        refuse_second_derivatives()
        (by_weight, by_kl), (loc, u, v, seed) = gradients, ctx.saved_tensors
        by_loc, by_u, by_v = tied_draw_backward(by_weight.flatten(1), by_kl, loc.flatten(1), u, v, seed, ctx.prior)
        return by_loc.view(loc.shape), by_u, by_v, None, None, None


class DrawnProduct(torch.autograd.Function):
    """`x W^T + bias` and the KL of `W`, in parts: all layers' are summed at once.

    torch sums the gradient by a bias in a buffer four times as large as the outputs, which stands at the peak of a
    training step; a product with ones needs none. The gradient by the weight is written in float32 to where that by its
    mean will be.
    """

    @staticmethod
    def forward(
        ctx: Any, loc: Tensor, log_std: Tensor, x: Tensor, ones: Tensor, bias: Tensor | None, seed: Tensor, prior: Prior
    ) -> tuple[Tensor, Tensor]:
        """Of `x` (rows, in) in 16 bits, and `ones` (1, rows); `loc`, `log_std` and `seed` as in `draw`."""
        weight, parts = draw(loc, log_std, seed, prior, x.dtype)
        ctx.save_for_backward(loc, log_std, seed, x, ones, weight)
        ctx.prior = prior
        ctx.bias_dtype = None if bias is None else bias.dtype
        output = torch.mm(x, weight.mT) if bias is None else torch.addmm(bias.to(x.dtype), x, weight.mT)
        return output, parts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients by all but ones, seed and prior."""
        refuse_second_derivatives()
        (by_output, by_kl), (loc, log_std, seed, x, ones, weight) = gradients, ctx.saved_tensors
        by_x = by_output @ weight if ctx.needs_input_grad[2] else None
        by_bias = None
        if ctx.needs_input_grad[4]:
            by_bias = torch.mm(ones, by_output, out_dtype=torch.float32)[0].to(ctx.bias_dtype)
        by_weight = torch.mm(by_output.mT, x, out_dtype=torch.float32)
        ctx.maybe_clear_saved_tensors()
        del x, weight  # before memory for the gradients is taken
        by_loc, by_log_std = draw_backward(by_weight, by_kl, loc, log_std, seed, ctx.prior, in_place=True)
        return by_loc, by_log_std, by_x, None, by_bias, None, None
