"""Layers with plain weights, sums and averages: linear maps of an uncertain input, all exact.

For independent inputs `y = W x + b` has `mean = W m + b` and `variance = W^2 v`, squared elementwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.estimators import without_float16
from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.arithmetic import add, bilinear
from bayeslim.posteriors.base import typed_as, wide

__all__ = ["addcmul", "added_product", "einsum", "mean", "sum", "weighted"]


def weighted(function: Callable[..., Tensor]) -> Callable[..., Gaussian]:
    """Make the rule of `function(x, weight, bias, *options)`: linear layers and convolutions.

    Weight and bias may be uncertain too, independently of `x` and of each other.
    """
    product = bilinear(lambda x, weight, *args, **kwargs: function(x, weight, None, *args, **kwargs))

    def rule(input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Gaussian:
        if isinstance(input, Gaussian) and not isinstance(weight, Gaussian) and not isinstance(bias, Gaussian):
            mean = function(typed_as(weight, input.loc), weight, bias, *args, **kwargs)
            with without_float16(mean.device.type):
                variance = function(wide(input.variance), wide(weight).square(), None, *args, **kwargs)
            return Gaussian.of(mean, variance, input.mode)
        result = product(input, weight, *args, **kwargs)
        if bias is None:
            return result
        positions = 0 if function is F.linear else weight.ndim - 2
        return add(result, bias.reshape(-1, *[1] * positions))

    return rule


def sum(input: Gaussian, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Gaussian:
    """`sum x`: `mean = sum m`, `variance = sum v`."""
    return Gaussian.of(
        torch.sum(input.loc, dim, keepdim, dtype=dtype),
        torch.sum(input.variance, dim, keepdim, dtype=dtype),
        input.mode,
    )


def mean(input: Gaussian, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Gaussian:
    """`(1/n) sum x`: `mean = (1/n) sum m`, `variance = (1/n^2) sum v`."""
    average = torch.mean(input.loc, dim, keepdim, dtype=dtype)
    count = input.numel() // max(1, average.numel())
    return Gaussian.of(average, torch.mean(input.variance, dim, keepdim, dtype=dtype) / count, input.mode)


def einsum(equation: str, *operands: Any) -> Gaussian:
    """A sum of products of two operands, or a linear map of one; elements are independent.

    Axes of one operand that are summed on their own are summed first, so that no product shares a factor with another.

    Raises:
        TypeError: for more than two operands: write them as several products.
    """
    parts: Sequence[Any] = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if len(parts) == 1:
        return parts[0].map(lambda part: torch.einsum(equation, part))
    if len(parts) != 2:
        raise TypeError(f"no moment rule for `einsum` of {len(parts)} operands: write it as products of two")
    (first, second), output = _axes(equation)
    product = f"{_kept(first, second + output)},{_kept(second, first + output)}->{output}".replace(".", "...")
    summed = [
        part if _kept(own, other + output) == own else torch.einsum(_reduction(own, other + output), part)
        for part, own, other in zip(parts, (first, second), (second, first), strict=True)
    ]

    def rule(left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum(product, left, right)

    rule.__name__ = "einsum"
    if parts[0] is parts[1]:
        summed = [parts[0], parts[0]]  # the rule of products says that it takes no value with itself
    return bilinear(rule)(*summed)


def added_product(product: Callable[..., Any]) -> Callable[..., Gaussian]:
    """Make the rule of `beta c + alpha a b`, a matrix product added to something: independent operands, exact.

    Args:
        product: torch's matrix product of `a` and `b`.
    """

    def rule(input: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Gaussian:
        return add(input * beta, product(a, b), alpha=alpha)

    return rule


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Gaussian:
    """`c + value a b`, elementwise, for independent operands. Exact."""
    return add(input, tensor1 * tensor2, alpha=value)


def _axes(equation: str) -> tuple[list[str], str]:
    """The axes of the operands and of the result, with one dot for an ellipsis."""
    left, arrow, output = equation.replace(" ", "").replace("...", ".").partition("->")
    operands = left.split(",")
    if not arrow:  # every axis that is named once, in the order of the alphabet
        output = "".join(sorted(axis for axis in {*left} - {",", "."} if left.count(axis) == 1))
        output = "." * ("." in left) + output
    if "." in left and "." not in output:
        raise TypeError(f"no moment rule for `einsum` that sums over an ellipsis, got {equation!r}: name its axes")
    return operands, output


def _kept(axes: str, elsewhere: str) -> str:
    """The axes of an operand, less those that are summed on their own."""
    return axes if {*axes} <= {*elsewhere} else "".join(dict.fromkeys(axis for axis in axes if axis in elsewhere))


def _reduction(axes: str, elsewhere: str) -> str:
    return f"{axes}->{_kept(axes, elsewhere)}".replace(".", "...")
