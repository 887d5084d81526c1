"""Exact references: every map is written out as a matrix, every covariance in full."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayeslim.ops import Op
from bayeslim.posteriors import Posterior


class FixedNoise(TorchFunctionMode):
    """Hand out the entries of a vector instead of `torch.randn_like`, in order; zeros when None."""

    def __init__(self, noise: Tensor | None = None) -> None:
        super().__init__()
        self.noise, self.used = noise, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.randn_like:
            return func(*args, **(kwargs or {}))
        start, self.used = self.used, self.used + args[0].numel()
        if self.noise is None:
            return torch.zeros_like(args[0])
        return self.noise[start : self.used].to(args[0].dtype).reshape(args[0].shape)


def noise_map(draw: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Write a draw that is affine in its standard normal noise as `mean + matrix @ noise`.

    Returns the flat mean and the matrix (outputs, noise), both differentiable.
    """
    with FixedNoise() as zero:
        mean = draw().flatten()
    columns = []
    for unit in torch.eye(zero.used, dtype=mean.dtype):
        with FixedNoise(unit):
            columns.append(draw().flatten() - mean)
    return mean, torch.stack(columns, 1)


def covariance(posterior: Posterior) -> Tensor:
    """The full covariance of the flattened weight."""
    matrix = noise_map(posterior.rsample)[1]
    return matrix @ matrix.T


def weight_map(op: Op, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The matrix (outputs, weights) of `W -> op(x, W)` for a weight of this shape."""
    units = torch.eye(math.prod(shape), dtype=torch.float64)
    return torch.stack([op(x, unit.reshape(shape)).flatten() for unit in units], 1)


def bilinear_map(op: Op, input_shape: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The tensor (outputs, inputs, weights) of `(x, W) -> op(x, W)`."""
    units = torch.eye(math.prod(input_shape), dtype=torch.float64)
    return torch.stack([weight_map(op, unit.reshape(input_shape), shape) for unit in units], 1)


def bias_map(op: Op, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The matrix (outputs, channels) of `b -> op(x, 0, b)`."""
    zero = torch.zeros(shape, dtype=x.dtype)
    return torch.stack([op(x, zero, unit).flatten() for unit in torch.eye(shape[0], dtype=x.dtype)], 1)


def output_covariance(op: Op, x: Tensor, posterior: Posterior, bias: Posterior | None = None) -> Tensor:
    """The full covariance of the flattened output `op(x, W) + b`."""
    shape = tuple(posterior.mean().shape)
    matrix = weight_map(op, x, shape)
    result = matrix @ covariance(posterior) @ matrix.T
    if bias is not None:
        matrix = bias_map(op, x, shape)
        result = result + matrix @ covariance(bias) @ matrix.T
    return result
