"""Moments of pools over windows of positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.gaussian import Gaussian

__all__ = ["adaptive_avg_pool", "avg_pool", "max_pool"]

_AVG_POOL: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_ADAPTIVE_AVG_POOL: dict[int, Callable[..., Tensor]] = {
    1: F.adaptive_avg_pool1d,
    2: F.adaptive_avg_pool2d,
    3: F.adaptive_avg_pool3d,
}


def max_pool(function: Callable[..., Any], dimensions: int) -> Callable[..., Any]:
    """Make the rule of a maximum over windows: the maximum of the means, with the variance found there.

    "Co-pooling" (VDP++): right where one element of the window clearly leads, or where the elements of a window
    move together. For `k` independent elements with equal means the true mean is higher and the variance smaller:
    for 2x2 windows by 1.03 standard deviations and to 0.49 of the variance, which is the largest error.

    Args:
        function: `F.max_pool2d` and its kin, with `return_indices`.
        dimensions: number of pooled axes.
    """

    def rule(input: Gaussian, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
        mean, indices = function(input.mean, *args, **kwargs, return_indices=True)
        chosen: Any = _Chosen.apply(input.variance.flatten(-dimensions), indices.flatten(-dimensions))
        result = Gaussian.of(mean, chosen.reshape(mean.shape), input.mode)
        return (result, indices) if return_indices else result

    return rule


def avg_pool(dimensions: int) -> Callable[..., Gaussian]:
    r"""Make the rule of an average over windows: `mean = c sum m`, `variance = c^2 sum v`. Exact.

    `c` is the coefficient of the window, `1/n` except where padding, `ceil_mode` or `divisor_override` say otherwise;
    it is the pool of ones divided by the sum of ones over the same window.

    Args:
        dimensions: number of pooled axes.
    """

    def rule(
        input: Gaussian,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Gaussian:
        options = (kernel_size, kernel_size if stride in (None, (), []) else stride, padding, ceil_mode)
        divisor = () if divisor_override is None else (divisor_override,)

        def average(x: Tensor) -> Tensor:
            return _AVG_POOL[dimensions](x, *options, count_include_pad, *divisor)

        ones = input.mean.new_ones(1, *input.shape[-dimensions:])
        if dimensions == 1:  # the only one without divisor_override
            flat = [(1, *(part if isinstance(part, tuple | list) else (part,))) for part in options[:2]]
            total = _AVG_POOL[2](ones[None], *flat, (0, *_tuple(padding, 1)), ceil_mode, True, 1)[0]
        else:
            total = _AVG_POOL[dimensions](ones, *options, True, 1)
        coefficient = average(ones) / total
        return Gaussian.of(average(input.mean), average(input.variance) * coefficient[0], input.mode)

    return rule


def adaptive_avg_pool(dimensions: int) -> Callable[..., Gaussian]:
    """Make the rule of an average over windows that fill a given output size: `variance = (1/n^2) sum v`. Exact.

    Along an axis of `I` elements, output `o` of `O` averages elements `floor(o I / O)` to `ceil((o + 1) I / O)`.

    Args:
        dimensions: number of pooled axes.
    """

    def rule(input: Gaussian, output_size: Any) -> Gaussian:
        pool = _ADAPTIVE_AVG_POOL[dimensions]
        mean = pool(input.mean, output_size)
        sizes = torch.ones((), dtype=mean.dtype, device=mean.device)
        for extent, out in zip(input.shape[-dimensions:], mean.shape[-dimensions:], strict=True):
            counts = [math.ceil((o + 1) * extent / out) - o * extent // out for o in range(out)]
            sizes = sizes[..., None] * torch.tensor(counts, dtype=mean.dtype, device=mean.device)
        return Gaussian.of(mean, pool(input.variance, output_size) / sizes, input.mode)

    return rule


class _Chosen(torch.autograd.Function):
    """`values.gather(-1, indices)`, which keeps only the indices for its gradient; torch's keeps the values too."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, indices: Tensor) -> Tensor:
        return values.gather(-1, indices)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.length = inputs[0].shape[-1]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        (indices,) = ctx.saved_tensors
        zeros = gradients[0].new_zeros(*indices.shape[:-1], ctx.length)
        return zeros.scatter_add(-1, indices, gradients[0]), None


def _tuple(value: Any, length: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * length
