"""Moments of pools over windows of positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.gaussian import Gaussian
from bayeslim.kernels.context import applied

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
    adaptive = "adaptive" in function.__name__

    def rule(input: Gaussian, *args: Any, return_indices: bool = False, **kwargs: Any) -> Any:
        _, indices = function(input.loc.detach(), *args, **kwargs, return_indices=True)
        extents = tuple(input.shape[-dimensions:])
        window = None if adaptive else _window(dimensions, *args, **kwargs)
        mean, variance = cast(Any, applied(_Chosen, input.loc, input.variance, indices, extents, window))
        result = Gaussian.of(mean, variance, input.mode)
        return (result, indices) if return_indices else result

    return rule


def _window(
    dimensions: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[int, ...] | None:
    """The size of windows that stand side by side; None for those that overlap or leave gaps or the input."""
    size = _tuple(kernel_size, dimensions)
    step = size if stride in (None, (), []) else _tuple(stride, dimensions)
    inside = not any(_tuple(padding, dimensions)) and not ceil_mode
    return size if size == step and inside and set(_tuple(dilation, dimensions)) == {1} else None


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

        ones = input.loc.new_ones(1, *input.shape[-dimensions:])
        if dimensions == 1:  # the only one without divisor_override
            flat = [(1, *(part if isinstance(part, tuple | list) else (part,))) for part in options[:2]]
            total = _AVG_POOL[2](ones[None], *flat, (0, *_tuple(padding, 1)), ceil_mode, True, 1)[0]
        else:
            total = _AVG_POOL[dimensions](ones, *options, True, 1)
        coefficient = average(ones) / total
        return Gaussian.of(average(input.loc), average(input.variance) * coefficient[0], input.mode)

    return rule


def adaptive_avg_pool(dimensions: int) -> Callable[..., Gaussian]:
    """Make the rule of an average over windows that fill a given output size: `variance = (1/n^2) sum v`. Exact.

    Along an axis of `I` elements, output `o` of `O` averages elements `floor(o I / O)` to `ceil((o + 1) I / O)`.

    Args:
        dimensions: number of pooled axes.
    """

    def rule(input: Gaussian, output_size: Any) -> Gaussian:
        pool = _ADAPTIVE_AVG_POOL[dimensions]
        mean = pool(input.loc, output_size)
        sizes = torch.ones((), dtype=mean.dtype, device=mean.device)
        for extent, out in zip(input.shape[-dimensions:], mean.shape[-dimensions:], strict=True):
            place = torch.arange(out, device=mean.device)
            counts = -(-(place + 1) * extent // out) - place * extent // out
            sizes = sizes[..., None] * counts.to(mean.dtype)
        return Gaussian.of(mean, pool(input.variance, output_size) / sizes, input.mode)

    return rule


class _Chosen(torch.autograd.Function):
    """The elements of two tensors at the places that a pool has chosen.

    For the gradient only the places are kept, in the smallest type that holds them; torch keeps the tensors besides,
    and the places in 64 bits. Where windows stand side by side every element asks whether it was its window's choice:
    no sums in any order, and a compiler fuses it with what follows.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        first: Tensor, second: Tensor, places: Tensor, extents: tuple[int, ...], window: tuple[int, ...] | None
    ) -> tuple[Tensor, Tensor]:
        flat = places.flatten(-len(extents))
        first, second = (part.flatten(-len(extents)).gather(-1, flat) for part in (first, second))
        return first.view(places.shape), second.view(places.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, _, places, ctx.extents, ctx.window = inputs
        kinds = (torch.uint8, torch.int16, torch.int32, torch.int64)
        smallest = next(kind for kind in kinds if math.prod(ctx.extents) <= torch.iinfo(kind).max)
        ctx.save_for_backward(places.to(smallest))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        if ctx.window is None:
            first, second = (_put_back(gradient, places, ctx.extents) for gradient in gradients)
        else:
            own = torch.arange(math.prod(ctx.extents), device=places.device).view(ctx.extents)
            chosen = _enlarged(places, ctx.extents, ctx.window) == own
            first, second = (
                torch.where(chosen, _enlarged(gradient, ctx.extents, ctx.window), 0) for gradient in gradients
            )
        return first, second, None, None, None


def _put_back(gradient: Tensor, places: Tensor, extents: tuple[int, ...]) -> Tensor:
    """Add every element to its place, in a tensor of zeros."""
    count = len(extents)
    zeros = gradient.new_zeros(*gradient.shape[:-count], math.prod(extents))
    sums = zeros.scatter_add(-1, places.flatten(-count).long(), gradient.flatten(-count))
    return sums.view(*gradient.shape[:-count], *extents)


def _enlarged(x: Tensor, extents: tuple[int, ...], window: tuple[int, ...]) -> Tensor:
    """Repeat every element over its window; 0 in the rest that no window covers."""
    for axis, (extent, size) in enumerate(zip(extents, window, strict=True), -len(extents)):
        last = x.movedim(axis, -1)
        repeated = last[..., None].expand(*last.shape, size).flatten(-2)
        x = F.pad(repeated, (0, extent - repeated.shape[-1])).movedim(-1, axis)
    return x


def _tuple(value: Any, length: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * length
