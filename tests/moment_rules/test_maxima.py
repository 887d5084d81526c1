"""The larger of two, exactly; the largest along an axis, within the stated error."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian
from contracts.members import over
from moment_rules.jacobians import assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, sampled, uncertain

A, B, ROW, FIXED = uncertain(2, 3), uncertain(2, 3, seed=1), uncertain(3, seed=2), certain(2, 3)

OF_TWO: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "maximum": (torch.maximum, (A, B)),
    "minimum": (torch.minimum, (A, B)),
    "max": (torch.max, (A, B)),
    "max-named": (lambda a, b: torch.max(a, other=b), (A, B)),
    "min-method": (lambda a, b: a.min(b), (A, B)),
    "broadcast": (torch.maximum, (A, ROW)),
    "fixed": (torch.maximum, (A, FIXED)),
    "fixed-first": (torch.maximum, (FIXED, A)),
    "fixed-minimum": (torch.minimum, (FIXED, A)),
    "far": (lambda a, b: torch.maximum(a + 50, b), (A, B)),
    "itself": (lambda a: torch.maximum(a, a), (A,)),
}


@over("name", OF_TWO)
def test_the_larger_of_two_is_exact(name: str) -> None:
    function, inputs = OF_TWO[name]
    assert_exact(function, *inputs)


def test_a_residual_connection_knows_its_covariance() -> None:
    """The larger of `x` and `W x`, for known weights that nearly copy."""
    x = uncertain(2, 3)
    weight = 0.9 * torch.eye(3).double()
    y: Any = Gaussian.of(x.loc @ weight.T, x.variance @ weight.T.square(), "exact", (x, lambda: weight.diagonal()))
    found: Any = torch.maximum(x, y)
    samples = sampled(lambda x: torch.maximum(x, x @ weight.T), x)
    torch.testing.assert_close(found.variance, samples.var(0), rtol=5 * (4 / len(samples)) ** 0.5, atol=0)
    torch.testing.assert_close(found.loc, samples.mean(0), rtol=0, atol=5 * samples.std().item() / len(samples) ** 0.5)
    smaller: Any = torch.minimum(y, x)
    torch.testing.assert_close(found.loc + smaller.loc, x.loc + y.loc)


def test_gradients_of_the_larger() -> None:
    for function in (torch.maximum, torch.minimum):
        assert_gradients(function, A, B)
    equal = Gaussian(A.loc, B.variance)
    assert_gradients(torch.maximum, A, equal)


def test_certain_operands_give_the_plain_maximum() -> None:
    mean, other = torch.tensor([-3.0, 0.0, 2.0], requires_grad=True), torch.tensor([1.0, 0.0, 1.0])
    found: Any = torch.maximum(Gaussian(mean, torch.zeros(3)), other)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(found.loc, torch.maximum(mean, other))
    assert not found.variance.any()
    assert torch.autograd.grad(found.loc.sum(), mean)[0].isfinite().all()


def test_the_larger_to_first_order_is_the_one_with_the_larger_mean() -> None:
    x, y = uncertain(2, 3, mode="taylor"), B
    found: Any = torch.minimum(x, y)
    assert found.mode == "taylor"
    assert torch.equal(found.loc, torch.minimum(x.loc, y.loc))
    assert torch.equal(found.variance, torch.where(x.loc <= y.loc, x.variance, y.variance))


def clear(mode: Any = "exact") -> Any:
    """Elements so far apart that one leads always."""
    torch.manual_seed(0)
    mean = 100 * torch.randperm(24).double().reshape(2, 3, 4)
    return Gaussian(mean, uncertain(2, 3, 4).variance, mode)


ALONG: dict[str, Function] = {
    "amax": lambda x: torch.amax(x, 1),
    "amax-all": torch.amax,
    "amax-dims": lambda x: x.amax((0, -1), keepdim=True),
    "amax-keep": lambda x: x.amax(dim=-1, keepdim=True),
    "amin": lambda x: torch.amin(x, (1, 2)),
    "max": lambda x: torch.max(x, 1)[0],
    "max-values": lambda x: x.max(dim=-1, keepdim=True).values,
    "max-all": torch.max,
    "min": lambda x: x.min(0).values,
    "min-all": lambda x: x.min(),
}


@over("name", ALONG)
def test_a_clear_leader_is_exact(name: str) -> None:
    assert_exact(ALONG[name], clear())
    assert moments_of(ALONG[name], clear("taylor")).mode == "taylor"
    assert_gradients(ALONG[name], clear())


@pytest.mark.parametrize("function", [torch.max, torch.min])
@over("keepdim", [True, False])
def test_indices_are_those_of_the_means(function: Function, keepdim: bool) -> None:
    x = uncertain(2, 3, 4)
    found, expected = function(x, 1, keepdim), function(x.loc, 1, keepdim)
    assert torch.equal(found.indices, expected.indices) and torch.equal(found.values.loc, expected.values)
    assert type(found) is type(expected)


@pytest.mark.parametrize(("count", "higher", "share"), [(4, 1.03, 0.49), (16, 1.77, 0.30)])
def test_equal_elements_are_as_far_off_as_stated(count: int, higher: float, share: float) -> None:
    x = Gaussian(torch.zeros(count).double(), torch.ones(count).double())
    found, samples = moments_of(torch.amax, x), sampled(torch.amax, x)
    assert found.loc.item() == 0 and found.variance.item() == 1
    error = 5e-3 + 5 * 0.7 / math.sqrt(len(samples))
    assert samples.mean().item() == pytest.approx(higher, abs=error)
    assert samples.var().item() == pytest.approx(share, abs=error)


def test_a_pool_over_everything_is_the_same() -> None:
    x = uncertain(2, 3, 4, 5)
    pooled: Any = torch.nn.AdaptiveMaxPool2d(1)(x)
    found: Any = torch.amax(x, (2, 3), keepdim=True)
    assert torch.equal(found.loc, pooled.loc) and torch.equal(found.variance, pooled.variance)


def test_a_scalar_is_its_own_largest() -> None:
    x = Gaussian(torch.tensor(1.0), torch.tensor(2.0))
    found: Any = torch.max(x)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert isinstance(found.loc, Tensor) and found.shape == () and found.variance.item() == 2
