"""Moments behind a rectifier at the ends of the number types, and inside transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.gaussian import Gaussian
from contracts.members import over


def rectified(mean: Tensor, variance: Tensor, slope: float = 0.0) -> Any:
    """A Gaussian, which torch's annotations do not know."""
    return F.leaky_relu(Gaussian.of(mean, variance), slope)  # pyright: ignore[reportArgumentType]


@over("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@over("slope", [0.0, 0.1])
def test_without_variance_it_is_the_function_itself_in_every_type(dtype: torch.dtype, slope: float) -> None:
    mean = torch.tensor([-3.0, -1.0, 0.0, 1e-3, 1.0, 30.0], dtype=dtype)
    value = rectified(mean, torch.zeros_like(mean), slope)
    torch.testing.assert_close(value.loc, F.leaky_relu(mean, slope), rtol=2 * torch.finfo(dtype).eps, atol=3e-4)
    assert bool((value.variance == 0).all())


@over("slope", [0.0, 0.1])
def test_overflow_is_infinite_and_no_nan(slope: float) -> None:
    value = rectified(torch.tensor([1.0, -1.0]), torch.full((2,), torch.inf), slope)
    assert bool((value.loc == torch.inf).all())


@over("slope", [0.0, 0.1])
def test_gradients_are_finite_up_to_the_largest_numbers(slope: float) -> None:
    mean = torch.tensor([3e38, -3e38, 1e30, -1e30], requires_grad=True)
    (gradient,) = torch.autograd.grad(rectified(mean, torch.ones(4), slope).loc.sum(), mean)
    torch.testing.assert_close(gradient, torch.tensor([1.0, slope, 1.0, slope]))


@over("slope", [0.0, 0.1])
@over("with_gradients", [True, False])
def test_samples_may_share_a_mean_or_a_variance(slope: float, with_gradients: bool) -> None:
    torch.manual_seed(0)
    means, variances = torch.randn(3, 4), torch.rand(3, 4)
    with torch.set_grad_enabled(with_gradients):
        by_mean = torch.vmap(lambda m: rectified(m, variances[0], slope).loc)(means)
        by_variance = torch.vmap(lambda v: rectified(means[0], v, slope).variance)(variances)
    torch.testing.assert_close(by_mean, rectified(means, variances[0].expand(3, 4), slope).loc)
    torch.testing.assert_close(by_variance, rectified(means[0].expand(3, 4), variances, slope).variance)


def test_gradients_of_samples_that_share_a_variance() -> None:
    torch.manual_seed(0)
    means, variance = torch.randn(3, 4), torch.rand(4)
    slopes = torch.vmap(torch.func.grad(lambda m: rectified(m, variance).loc.sum()))(means)
    torch.testing.assert_close(slopes, torch.special.ndtr(means / variance.sqrt()), rtol=1e-5, atol=1e-5)


def test_a_wide_mean_keeps_its_precision_beside_a_narrow_variance() -> None:
    mean = torch.linspace(-2, 2, 9, dtype=torch.float64)
    variance = torch.full((9,), 0.25)
    found, wide = rectified(mean, variance), rectified(mean, variance.double())
    assert found.loc.dtype == torch.float64
    torch.testing.assert_close(found.loc, wide.loc, rtol=0, atol=1e-7)


def test_a_draw_without_variance_has_no_slope_by_it() -> None:
    variance = torch.zeros(5, requires_grad=True)
    drawn = Gaussian.of(torch.ones(5), variance).rsample()
    drawn.sum().backward()
    assert torch.equal(variance.grad, torch.zeros(5)) and drawn.allclose(torch.ones(5))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_compiled_formula_agrees(requires_grad: bool) -> None:
    torch.manual_seed(0)
    mean, variance = torch.randn(40).requires_grad_(requires_grad), torch.rand(40)
    compiled = torch.compile(lambda m, v: rectified(m, v).loc, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(mean, variance), rectified(mean, variance).loc)
