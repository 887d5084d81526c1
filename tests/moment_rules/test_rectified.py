"""Rectified Gaussians piece by piece, as large tensors are worked on by a CPU, and in compiled code."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bayeslim.moment_rules import rectified
from bayeslim.moment_rules.rectified import rectified_moments


def inputs(shape: tuple[int, ...] = (3, 4, 5, 7)) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(*shape, generator=generator)
    variance = torch.rand(*shape, generator=generator)
    mean.view(-1)[:3], variance.view(-1)[2:4] = torch.tensor([0.0, 1e-20, -1e-20]), 0.0
    return mean.requires_grad_(), variance.requires_grad_()


def with_gradients(mean: Tensor, variance: Tensor, slope: float) -> tuple[Tensor, ...]:
    values = rectified_moments(mean, variance, slope)
    weights = torch.linspace(-1, 1, mean.numel()).view(mean.shape)
    objective = (weights * values[0]).sum() + (weights * values[1]).square().sum()
    return *values, *torch.autograd.grad(objective, (mean, variance))


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("piece", [1, 37, 10_000])
def test_pieces_give_what_the_whole_gives(slope: float, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = inputs()
    expected = with_gradients(mean, variance, slope)
    monkeypatch.setattr(rectified, "PIECE", piece)
    found = with_gradients(mean, variance, slope)
    with torch.no_grad():
        found += rectified_moments(mean, variance, slope)
    for one, other in zip(found, expected + expected[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # torch's gelu of a short vector rounds otherwise


def test_pieces_need_memory_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other layouts, and a view that repeats one variance, are worked on as a whole."""
    mean, variance = inputs()
    expected = with_gradients(mean, variance, 0.0)
    monkeypatch.setattr(rectified, "PIECE", 16)
    last = torch.channels_last
    found = with_gradients(mean.contiguous(memory_format=last), variance.contiguous(memory_format=last), 0.0)
    torch.testing.assert_close(found, expected)
    one = torch.full((), 0.5)
    torch.testing.assert_close(
        rectified_moments(mean, one.expand_as(mean), 0.0), rectified_moments(mean, torch.full_like(mean, 0.5), 0.0)
    )


def test_pieces_inside_vmap_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = inputs()
    expected = rectified_moments(mean, variance, 0.0)
    monkeypatch.setattr(rectified, "PIECE", 16)
    found = torch.vmap(lambda m, v: rectified_moments(m, v, 0.0), in_dims=1, out_dims=1)(mean, variance)
    torch.testing.assert_close(found, expected)
    slopes = torch.func.grad(lambda m: rectified_moments(m, variance, 0.0)[0].sum())(mean)
    torch.testing.assert_close(slopes, torch.autograd.grad(expected[0].sum(), mean)[0])


def test_gradients_pass_through_vmap() -> None:
    """A stack of networks is differentiated around `torch.vmap`, inside which nothing seems to need gradients."""
    mean, variance = inputs()
    found = torch.vmap(lambda m, v: rectified_moments(m, v, 0.0))(mean, variance)
    expected = rectified_moments(mean, variance, 0.0)
    objectives = [(one[0] * one[1]).sum() for one in (found, expected)]
    ours, theirs = (torch.autograd.grad(objective, (mean, variance)) for objective in objectives)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_code_computes_the_same(slope: float, dtype: torch.dtype) -> None:
    """Values and all that the gradient needs, from deep below zero to far above it, with little and much variance."""
    places = torch.linspace(-30, 30, 241, dtype=dtype)
    mean = torch.cat([places, 1e-8 * places])
    for std in (1e-3, 1.0, 50.0):
        variance = torch.full_like(mean, std**2)
        one, other = rectified._formula(mean, variance, slope), rectified._values(mean, variance, slope, 5)
        assert len(one) == len(other) == (4 if slope == 0 else 5)
        for formula, value, size in zip(one, other, (std, std**2, 1.0, 1 / std, std), strict=False):
            torch.testing.assert_close(
                formula / size, value / size, rtol=1e-5, atol=1e-5 if dtype.itemsize == 4 else 1e-11
            )


def test_compiled_gradients_are_the_eager_ones() -> None:
    torch.manual_seed(0)
    mean, variance = torch.randn(64, requires_grad=True), torch.rand(64).requires_grad_()

    def loss(mean: Tensor, variance: Tensor) -> Tensor:
        first, second = rectified_moments(mean, variance, 0.0)
        return (first.sin() + second.cos()).sum()

    eager, compiled = (
        torch.autograd.grad(of(mean, variance), (mean, variance)) for of in (loss, torch.compile(loss, fullgraph=True))
    )
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)


def test_pieces_keep_a_variance_wider_than_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float16 autocast leaves means of float16 and variances of float32, which float16 would round to 0."""
    monkeypatch.setattr(rectified, "PIECE", 16)
    mean, variance = torch.zeros(100, dtype=torch.float16), torch.full((100,), 1e-9)
    found = rectified_moments(mean, variance, 0.0)
    torch.testing.assert_close(found[1], variance * (0.5 - 0.5 / torch.pi))


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("used", [0, 1])
def test_gradients_of_one_moment_alone(used: int, slope: float) -> None:
    """The other has none, in the backward pass neither."""
    mean, variance = torch.linspace(-2, 2, 9, dtype=torch.float64), torch.linspace(0.5, 1, 9, dtype=torch.float64)
    tensors = mean.requires_grad_(), variance.requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: rectified_moments(m, v, slope)[used], tensors)
