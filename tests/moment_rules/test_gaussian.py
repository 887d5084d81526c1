"""The pair of mean and variance."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeslim import layers
from bayeslim.estimators import moments
from bayeslim.gaussian import Gaussian
from contracts.members import over
from contracts.statistics import assert_gaussian_moments, draws


def pair(*shape: int) -> Gaussian:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(shape, generator=generator, dtype=torch.float64)
    return Gaussian(mean, torch.rand(shape, generator=generator, dtype=torch.float64) + 0.1)


def test_draws_have_the_stated_moments() -> None:
    x = pair(3, 2)
    assert_gaussian_moments(draws(x.rsample, 20_000, seed=1), x.loc, x.variance)


def test_draws_are_differentiable_also_without_variance() -> None:
    mean, variance = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    gradients = torch.autograd.grad(Gaussian(mean, variance).rsample().sum(), (mean, variance))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_shape_scale_and_repr() -> None:
    x = pair(3, 2)
    assert x.shape == (3, 2)
    assert x.ndim == 2
    torch.testing.assert_close(x.scale.square(), x.variance)
    assert repr(x) == "Gaussian(shape=(3, 2))"
    assert repr(Gaussian(x.loc, x.variance, "taylor")) == "Gaussian(shape=(3, 2), mode='taylor')"
    assert not isinstance(x, torch.Tensor)


def test_what_modules_ask_of_a_tensor() -> None:
    x = pair(3, 2)
    assert len(x) == 3
    assert x.dim() == 2
    assert x.size() == (3, 2) and x.size(1) == 2 and x.size(-2) == 3
    assert x.numel() == 6
    assert x.dtype == torch.float64 and x.device == torch.device("cpu")
    zeros = x.new_zeros(2, 5)
    assert type(zeros) is torch.Tensor and zeros.dtype == torch.float64 and zeros.shape == (2, 5)
    assert x.new_zeros(1, dtype=torch.float32).dtype == torch.float32
    assert not x.is_nested and not x.requires_grad


def test_flatten_acts_on_both() -> None:
    x = pair(2, 3, 4)
    flat = nn.Flatten()(x)
    assert torch.equal(flat.loc, x.loc.flatten(1))
    assert torch.equal(flat.variance, x.variance.flatten(1))


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"must have the same shape, got \(2,\) and \(3,\)"):
        Gaussian(torch.zeros(2), torch.ones(3))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-1.0, "values from -1 to 1"), (math.nan, "NaN"), (math.inf, "values from 1 to inf")],
)
def test_a_variance_that_is_none_is_refused(value: float, shown: str) -> None:
    message = rf"`variance` must be finite and not negative, got {shown}: pass e\.g\. std\.square\(\)"
    with pytest.raises(ValueError, match=message):
        Gaussian(torch.zeros(2), torch.tensor([1.0, value]))


def test_no_variance_at_all_is_one() -> None:
    assert Gaussian(torch.zeros(2), torch.zeros(2)).scale.tolist() == [0.0, 0.0]
    assert Gaussian(torch.zeros(0, 3), torch.zeros(0, 3)).shape == (0, 3)


@pytest.mark.parametrize(
    ("mean", "variance", "message"),
    [
        (torch.zeros(2, dtype=torch.int64), torch.ones(2), r"`mean` must be a floating-point tensor, got torch\.int64"),
        (torch.zeros(2), torch.ones(2).bool(), r"`variance` must be a floating-point tensor, got torch\.bool"),
        (0.0, torch.ones(2), r"`mean` must be a floating-point tensor, got float"),
        (torch.zeros(2), [1.0, 1.0], r"`variance` must be a floating-point tensor, got list"),
    ],
)
def test_only_floating_point_tensors_are_taken(mean: Any, variance: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Gaussian(mean, variance)


def test_an_unknown_mode_is_refused() -> None:
    mode: Any = "second"
    with pytest.raises(ValueError, match=r"`mode` must be 'exact' or 'taylor', got 'second'"):
        Gaussian(torch.zeros(2), torch.ones(2), mode)


@pytest.mark.parametrize(
    ("function", "name"),
    [(torch.log, "log"), (torch.sort, "sort"), (nn.Softshrink(), "softshrink")],
)
def test_a_function_without_a_rule_is_named(function: Any, name: str) -> None:
    message = (
        rf"no moment rule for `{name}`: register one with `bayeslim\.gaussian\.MOMENT_RULES\[.*predict by sampling"
    )
    with pytest.raises(TypeError, match=message):
        function(pair(2, 3))


@over("name", ["log", "argmax", "H", "nonsense", "_private"])
def test_a_method_without_a_rule_is_named(name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no moment rule for `{name}`: register one with"):
        getattr(pair(2), name)
    assert not hasattr(pair(2), name)


def test_a_tensor_may_stand_first() -> None:
    x, fixed = pair(2, 2), torch.tensor([[1.0, -2.0], [3.0, 0.5]]).double()
    cases: list[tuple[Any, torch.Tensor, torch.Tensor]] = [
        (fixed + x, fixed + x.loc, x.variance),
        (fixed - x, fixed - x.loc, x.variance),
        (fixed * x, fixed * x.loc, fixed.square() * x.variance),
        (fixed @ x, fixed @ x.loc, fixed.square() @ x.variance),
    ]
    for found, mean, variance in cases:
        assert isinstance(found, Gaussian)
        torch.testing.assert_close(found.loc, mean)
        torch.testing.assert_close(found.variance, variance)


MISUSES: dict[str, Any] = {
    "attribute": lambda x: x.mean.shape,
    "method": lambda x: x.std.sqrt(),
    "sum": lambda x: x.mean + 1,
    "product": lambda x: 2 * x.std,
    "with a tensor": lambda x: torch.ones(3, 2) - x.mean,
    "with an array": lambda x: np.ones(2) * x.std,
    "negative": lambda x: -x.mean,
    "index": lambda x: x.mean[0],
    "loop": lambda x: list(x.mean),
    "length": lambda x: len(x.mean),
    "number": lambda x: float(x.std),
    "comparison": lambda x: x.mean > 0,
    "equality": lambda x: x.mean == x.loc,
    "function": lambda x: torch.exp(x.mean),
    "function of several": lambda x: torch.stack([x.mean]),
    "array": lambda x: np.asarray(x.std),
}


@over("name", MISUSES)
def test_a_method_taken_for_the_tensor_it_was_says_the_new_name(name: str) -> None:
    with pytest.raises(
        TypeError, match=r"are methods, .*mean tensor is `x\.loc` now, its standard deviation `x\.scale`"
    ):
        MISUSES[name](pair(3, 2))


def test_the_methods_know_that_they_are_no_tensors() -> None:
    x = pair(3, 2)
    assert callable(x.mean) and not hasattr(x.mean, "shape") and not hasattr(x.std, "dtype")
    with pytest.raises(AttributeError):
        x.mean = torch.zeros(3, 2)  # pyright: ignore[reportAttributeAccessIssue]


def copies() -> dict[str, Any]:
    return {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


@over("way", copies())
def test_a_copy_is_equal_and_forgets_the_layer_that_made_it(way: str) -> None:
    """The layer itself would come along, and cannot be pickled from here."""
    layer: Any = layers.Linear(3, 3, estimator=moments)
    with torch.no_grad():
        made = layer(Gaussian(torch.ones(2, 3), torch.ones(2, 3), "taylor"))
    assert made.residual is not None
    for x in (made, Gaussian(torch.zeros(2), torch.ones(2))):
        twin = copies()[way](x)
        assert torch.equal(twin.loc, x.loc) and torch.equal(twin.variance, x.variance)
        assert twin.mode == x.mode and twin.residual is None
    assert made.residual is not None
