"""Variances and deviations along axes, and what networks make of them by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import special

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from contracts.members import over
from export.networks import ByHand
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import (
    Function,
    assert_exact,
    assert_states,
    certain,
    deviation_error,
    moments_of,
    uncertain,
)

VARIANCES: dict[str, Function] = {
    "all": lambda x: x.var(),
    "axis": lambda x: x.var(1),
    "axes": lambda x: x.var(dim=(0, -1), keepdim=True),
    "list": lambda x: x.var([1, 2]),
    "biased": lambda x: x.var(-1, unbiased=False),
    "biased by place": lambda x: torch.var(x, 1, False, True),
    "biased, all": lambda x: x.var(False),
    "correction": lambda x: torch.var(x, 1, correction=0.5),
    "two elements": lambda x: x[:, :2].var(1),
    "one element": lambda x: x.var(0, correction=0),
    "NumPy's names": lambda x: x.var(axis=-1, keepdims=True),
    "var_mean": lambda x: torch.var_mean(x, 2, correction=0)[0],
    "its mean": lambda x: torch.var_mean(x, (0, 2), keepdim=True)[1],
}


@over("name", VARIANCES)
def test_moments_of_variances_are_exact(name: str) -> None:
    x = uncertain(1, 3, 4)
    assert_exact(VARIANCES[name], x)
    assert moments_of(VARIANCES[name], x).shape == VARIANCES[name](x.loc).shape


@over("name", VARIANCES)
def test_first_order_variances(name: str) -> None:
    assert_first_order(VARIANCES[name], uncertain(1, 3, 4, mode="taylor"))


def test_std_is_the_root_of_var_with_the_same_arguments() -> None:
    x, y = uncertain(2, 5), uncertain(2, 5, mode="taylor")
    found: Any
    for found in (x.std(1, keepdim=True), torch.std(x, (1,), True, True), torch.std_mean(x, 1, keepdim=True)[0]):
        expected = x.var(1, keepdim=True).sqrt()
        assert torch.equal(found.loc, expected.loc) and torch.equal(found.variance, expected.variance)
    found = torch.std_mean(x, 1)[1]
    assert torch.equal(found.variance, x.mean(1).variance)
    assert_first_order(lambda x: x.std(1, correction=0), y)


@over("mode", ["exact", "taylor"])
def test_gradients(mode: Any) -> None:
    assert_gradients(lambda x: x.var(1), uncertain(2, 4, mode=mode))
    assert_gradients(lambda x: x.std(-1, unbiased=False), uncertain(2, 4, mode=mode))


@pytest.mark.parametrize(("count", "stated"), [(8, 0.06), (64, 0.008)])
def test_the_deviation_of_noise_alone_is_as_far_off_as_stated(count: int, stated: float) -> None:
    """Its moments are those of the chi distribution."""
    mean = math.sqrt(2 / (count - 1)) * math.exp(special.gammaln(count / 2) - special.gammaln((count - 1) / 2))
    found = Gaussian(torch.full((count,), 7.0).double(), torch.ones(count).double()).std()
    assert_states(1 - found.scale.item() / math.sqrt(1 - mean**2), stated)
    assert found.loc.item() == pytest.approx(mean, abs=0.02 * math.sqrt(1 - mean**2))


def test_constant_values_and_single_ones() -> None:
    constant = Gaussian(torch.ones(3, 4), torch.zeros(3, 4))
    assert not constant.std(1).loc.any() and not constant.std(1).variance.any()
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert bool(constant[:1].var(0).loc.isnan().all())


def test_float16_keeps_small_variances() -> None:
    mean, variance = torch.randn(2, 16, generator=torch.Generator().manual_seed(0)), torch.full((2, 16), 1e-8)
    found, expected = Gaussian(mean.half(), variance).var(1), Gaussian(mean.half().float(), variance).var(1)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.variance, expected.variance)


def by_deviation(x: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


def by_variance(x: Any) -> Any:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)


def by_length(x: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)


@over("noise", [0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("function", "features", "stated", "worst"),
    [
        *((by_deviation, 64, 0.035, 1.25), (by_variance, 64, 0.035, 1.25), (by_length, 64, 0.018, 1.25)),
        *((by_deviation, 8, 0.35, 3.5), (by_variance, 8, 0.35, 3.5), (by_length, 8, 0.18, 3.5)),
    ],
)
def test_norms_by_hand_are_as_far_off_as_stated(
    function: Function, features: int, stated: float, worst: float, noise: float
) -> None:
    """That numerator and divisor move together is lost: the deviation comes out too large."""
    mean = certain(32, features)
    error = deviation_error(function, Gaussian(mean, torch.full_like(mean, noise**2)), count=4000)
    assert_states(error.mean().item(), stated)
    assert error.max().item() < worst - 1


def test_a_network_as_people_write_them_passes_by_moments() -> None:
    torch.manual_seed(0)
    model: Any = bl.bayesianize_(
        ByHand(),
        where=lambda name, _: name in ("hidden", "head"),
        posterior=lambda m: bl.posteriors.MeanField(m, scale=0.03),
    )
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        with bl.using(model, bl.moments):
            found = model(x)
        with bl.using(model, bl.weight_sample):
            drawn = torch.stack([model(x) for _ in range(2000)])
    error = found.scale / drawn.std(0) - 1
    assert error.abs().max().item() < 0.1
    assert ((found.loc - drawn.mean(0)) / drawn.std(0)).abs().max().item() < 0.15
