"""Moments of sums and products.

Operands are taken as independent, except where the library can know better: an operand and itself, and the residual
connection `x + W x` around one Bayesian linear or convolutional layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayeslim.estimators import without_float16
from bayeslim.gaussian import Gaussian
from bayeslim.moment_rules.powers import power
from bayeslim.posteriors.base import wide

__all__ = [
    "add",
    "bilinear",
    "covariance_of",
    "div",
    "lerp",
    "mean_of",
    "mode_of",
    "mul",
    "neg",
    "square",
    "sub",
    "variance_of",
    "where",
]

Operand = Gaussian | Tensor | float


def add(input: Operand, other: Operand, *, alpha: float = 1) -> Gaussian:
    r"""`a + c b` for independent `a`, `b`: `mean = m_a + c m_b`, `variance = v_a + c^2 v_b`. Exact.

    For `a` itself twice the covariance is `v_a`, and for `a = x`, `b = W x` (in either order) it is
    `Cov[x_i, (W x)_i] = E[W_ii] v_i`: both are added as `2 c Cov`.

    Args:
        input: a Gaussian, tensor or number `a`.
        other: likewise `b`; shapes broadcast, and copies made by broadcasting count as independent.
        alpha: the factor `c`.
    """
    mean = mean_of(input) + alpha * mean_of(other)
    variance = variance_of(input) + alpha**2 * variance_of(other)
    if isinstance(input, Gaussian) and isinstance(other, Gaussian) and input.shape == other.shape:
        covariance = covariance_of(input, other)
        if covariance is not None:
            variance = (variance + 2 * alpha * covariance).clamp_min(0)
    return _result(mean, variance, input, other)


def sub(input: Operand, other: Operand, *, alpha: float = 1) -> Gaussian:
    """`a - c b`: see `add`."""
    return add(input, other, alpha=-alpha)


def mul(input: Operand, other: Operand) -> Gaussian:
    r"""`a b` for independent `a`, `b`: `mean = m_a m_b`, `variance = m_a^2 v_b + v_a (m_b^2 + v_b)`. Exact.

    `x * x` is `square(x)`.

    Args:
        input: a Gaussian, tensor or number `a`.
        other: likewise `b`.
    """
    if input is other and isinstance(input, Gaussian):
        return square(input)
    if not isinstance(other, Gaussian):  # one product instead of three
        assert isinstance(input, Gaussian)
        return _result(input.loc * other, input.variance * other**2, input)
    if not isinstance(input, Gaussian):
        return mul(other, input)
    return bilinear(torch.mul)(input, other)


def div(input: Operand, other: Operand, *, rounding_mode: None = None) -> Gaussian:
    """`a / c`: exact for a constant `c`; for an uncertain one `a` times the rule of `1 / c`, see `powers.power`.

    Raises:
        TypeError: for a quotient that is rounded.
    """
    if rounding_mode is not None:
        raise TypeError(f"no moment rule for `div` with rounding_mode={rounding_mode!r}: divide without it")
    if isinstance(other, Gaussian):
        return mul(input, power(other, -1))
    assert isinstance(input, Gaussian)
    return _result(input.loc / other, input.variance / other**2, input)


def neg(input: Gaussian) -> Gaussian:
    """`-a`. Exact."""
    return _result(-input.loc, input.variance, input)


def square(input: Gaussian) -> Gaussian:
    """`x^2`: `mean = m^2 + v`, `variance = 2 v (2 m^2 + v)`, exact; in mode "taylor" `m^2` and `4 m^2 v`."""
    squared = input.loc.square()
    if input.mode == "taylor":
        return _result(squared, 4 * squared * input.variance, input)
    return _result(squared + input.variance, 2 * input.variance * (2 * squared + input.variance), input)


def lerp(input: Operand, end: Operand, weight: Operand) -> Gaussian:
    r"""`(1 - w) a + w b` for independent `a`, `b`, `w`. Exact.

    `mean = (1 - m_w) m_a + m_w m_b`,
    `variance = (1 - m_w)^2 v_a + m_w^2 v_b + v_w ((m_b - m_a)^2 + v_a + v_b)`.

    Args:
        input: a Gaussian, tensor or number `a`.
        end: likewise `b`.
        weight: likewise `w`.
    """
    share, start, finish = mean_of(weight), mean_of(input), mean_of(end)
    spread = variance_of(input), variance_of(end)
    variance = (1 - share) ** 2 * spread[0] + share**2 * spread[1]
    variance = variance + variance_of(weight) * ((finish - start) ** 2 + spread[0] + spread[1])
    return _result(start + share * (finish - start), variance, input, end, weight)


def where(condition: Tensor, input: Operand, other: Operand) -> Gaussian:
    """`a` where the condition holds, `b` elsewhere. Exact."""
    mean = torch.where(condition, mean_of(input), mean_of(other))
    return _result(mean, torch.where(condition, variance_of(input), variance_of(other)), input, other)


def bilinear(function: Callable[..., Tensor]) -> Callable[..., Gaussian]:
    r"""Make the rule of a function that is linear in each of two operands, such as a matrix product.

    For independent elements `a`, `b`: `mean = f(m_a, m_b)`, `variance = f(m_a^2, v_b) + f(v_a, m_b^2 + v_b)`. Exact
    if no result multiplies an element with itself. One operand may be a plain tensor; further arguments are options
    of `function`.

    Args:
        function: `f(a, b, *options)`, each result a sum of products `a_i b_j`, none of whose factors it holds twice.

    Raises:
        TypeError: by the rule, for a value with itself, whose elements would count as independent.
    """

    def rule(a: Gaussian | Tensor, b: Gaussian | Tensor, *args: Any, **kwargs: Any) -> Gaussian:
        def f(left: Tensor, right: Tensor) -> Tensor:
            return function(left, right, *args, **kwargs)

        def squared(x: Tensor) -> Tensor:
            return wide(x).square()

        if a is b and isinstance(a, Gaussian):
            name = getattr(function, "__name__", "<lambda>").replace("<lambda>", "product")
            raise TypeError(
                f"no moment rule for `{name}` of an uncertain value with itself, whose elements would count as "
                "independent: write a sum of squares as torch.sum(torch.square(x), dim), or predict by sampling"
            )
        with without_float16(mean_of(a).device.type):
            if not isinstance(a, Gaussian):
                variance = f(squared(a), wide(variance_of(b)))
            elif not isinstance(b, Gaussian):
                variance = f(wide(a.variance), squared(b))
            else:
                spread = wide(b.variance)
                variance = f(squared(a.loc), spread) + f(wide(a.variance), squared(b.loc) + spread)
        return _result(f(mean_of(a), mean_of(b)), variance, a, b)

    return rule


def mode_of(*values: Any) -> Any:
    """The mode of what is computed from `values`: first order if any Gaussian among them is."""
    modes = {value.mode for value in values if isinstance(value, Gaussian)}
    return "taylor" if "taylor" in modes else "exact"


def mean_of(value: Operand) -> Any:
    """The mean of a Gaussian; a certain value is its own."""
    return value.loc if isinstance(value, Gaussian) else value


def variance_of(value: Operand) -> Any:
    """The variance of a Gaussian; 0 for a certain value."""
    return value.variance if isinstance(value, Gaussian) else 0


def covariance_of(a: Gaussian, b: Gaussian) -> Tensor | None:
    """`Cov[a_i, b_i]` where it is known."""
    if a is b:
        return a.variance
    for value, other in ((a, b), (b, a)):
        if value.residual is not None and value.residual[0] is other:
            return value.residual[1]() * other.variance
    return None


def _result(mean: Tensor, variance: Tensor, *sources: Any) -> Gaussian:
    """A Gaussian in the mode of its sources, its variance in the shape of its mean."""
    return Gaussian.of(mean, variance if variance.shape == mean.shape else variance.expand_as(mean), mode_of(*sources))
