"""Averages over windows against Monte Carlo, maxima within the stated error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import over
from moment_rules.monte_carlo import Function, assert_exact, moments_of, sampled, uncertain

LINE, IMAGE, VOLUME = uncertain(1, 2, 7), uncertain(1, 2, 5, 4, seed=1), uncertain(1, 1, 3, 3, 4, seed=2)

EXACT: dict[str, tuple[Function, Gaussian]] = {
    "avg1d": (lambda x: F.avg_pool1d(x, 2), LINE),
    "avg1d-options": (lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), LINE),
    "avg1d-tuples": (lambda x: F.avg_pool1d(x, (3,), (2,), (1,), ceil_mode=True), LINE),
    "avg1d-unbatched": (lambda x: F.avg_pool1d(x[0], 2), LINE),
    "avg2d": (lambda x: F.avg_pool2d(x, 2), IMAGE),
    "avg2d-padding": (lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), IMAGE),
    "avg2d-without-padding": (lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), count_include_pad=False), IMAGE),
    "avg2d-ceil": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True), IMAGE),
    "avg2d-ceil-padding": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    "avg2d-divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), IMAGE),
    "avg2d-divisor-ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False, 5), IMAGE),
    "avg2d-module": (nn.AvgPool2d(2, padding=1), IMAGE),
    "avg2d-overlap": (lambda x: F.avg_pool2d(x, 3, 1), IMAGE),
    "avg3d": (lambda x: F.avg_pool3d(x, 2, padding=1, count_include_pad=False), VOLUME),
    "avg3d-divisor": (lambda x: F.avg_pool3d(x, (1, 2, 2), divisor_override=2), VOLUME),
    "adaptive1d": (lambda x: F.adaptive_avg_pool1d(x, 3), LINE),
    "adaptive2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE),
    "adaptive2d-larger": (lambda x: F.adaptive_avg_pool2d(x, (3, 6)), IMAGE),
    "adaptive2d-none": (nn.AdaptiveAvgPool2d((None, 1)), IMAGE),
    "adaptive2d-global": (nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), VOLUME),
}


@each("name", EXACT)
def test_averages_are_exact(name: str) -> None:
    assert_exact(*EXACT[name])


@pytest.mark.parametrize(
    ("pool", "x"), [(F.avg_pool1d, LINE), (F.avg_pool2d, IMAGE), (F.avg_pool3d, VOLUME), (F.max_pool2d, IMAGE)]
)
def test_an_empty_batch_stays_empty(pool: Function, x: Gaussian) -> None:
    found = pool(x[:0], 2)
    assert found.variance.shape == pool(x.loc[:0], 2).shape


MAXIMA: dict[str, tuple[Function, Gaussian]] = {
    "max1d": (lambda x, **o: F.max_pool1d(x, 3, 2, 1, **o), LINE),
    "max2d": (lambda x, **o: F.max_pool2d(x, 2, **o), IMAGE),
    "max2d-dilated": (lambda x, **o: F.max_pool2d(x, 2, 1, 1, 2, True, **o), IMAGE),
    "max2d-unbatched": (lambda x, **o: F.max_pool2d(x[0], 2, **o), IMAGE),
    "max3d": (lambda x, **o: F.max_pool3d(x, (1, 2, 2), **o), VOLUME),
    "adaptive1d": (lambda x, **o: F.adaptive_max_pool1d(x, 3, **o), LINE),
    "adaptive2d": (lambda x, **o: nn.AdaptiveMaxPool2d((2, None), **o)(x), IMAGE),
    "adaptive3d": (lambda x, **o: F.adaptive_max_pool3d(x, 2, **o), VOLUME),
}


@over("name", MAXIMA)
def test_a_maximum_has_the_variance_found_there(name: str) -> None:
    """Exact where one element of every window leads by far more than the noise."""
    function, x = MAXIMA[name]
    torch.manual_seed(0)
    places = torch.randperm(x.numel()).reshape(x.shape)
    clear = Gaussian(100.0 * places.double(), x.variance, "taylor")
    assert_exact(function, clear)
    found, indices = function(clear, return_indices=True)
    _, expected = function(clear.loc, return_indices=True)
    assert torch.equal(indices, expected)
    assert found.mode == "taylor"
    assert torch.equal(found.variance, moments_of(function, clear).variance)


WINDOWS: dict[str, tuple[Function, int, tuple[int, ...]]] = {
    "line": (lambda x, **o: F.max_pool1d(x, 3, **o), 1, (2, 7)),
    "image": (lambda x, **o: F.max_pool2d(x, 2, **o), 2, (2, 3, 6, 4)),
    "rest": (lambda x, **o: F.max_pool2d(x, (2, 3), **o), 2, (1, 2, 5, 7)),
    "large": (lambda x, **o: F.max_pool2d(x, (2, 3), **o), 2, (1, 2, 20, 21)),
    "volume": (lambda x, **o: F.max_pool3d(x, (1, 2, 2), (1, 2, 2), **o), 3, (1, 2, 3, 4, 5)),
    "overlap": (lambda x, **o: F.max_pool2d(x, 3, 1, **o), 2, (1, 2, 6, 5)),
    "gaps": (lambda x, **o: F.max_pool2d(x, 1, 2, **o), 2, (1, 2, 6, 5)),
    "padded": (lambda x, **o: F.max_pool2d(x, 2, padding=1, **o), 2, (1, 2, 6, 5)),
    "ceiled": (lambda x, **o: F.max_pool2d(x, 2, ceil_mode=True, **o), 2, (1, 2, 5, 5)),
    "adaptive": (lambda x, **o: F.adaptive_max_pool2d(x, 2, **o), 2, (1, 2, 5, 5)),
}


@over("name", WINDOWS)
def test_gradients_of_maxima_are_those_of_torch(name: str) -> None:
    pool, dimensions, shape = WINDOWS[name]
    torch.manual_seed(0)
    mean, variance = torch.randn(shape).double().requires_grad_(), torch.rand(shape).double().requires_grad_()
    found = pool(Gaussian(mean, variance))
    expected, places = pool(mean, return_indices=True)
    chosen = variance.flatten(-dimensions).gather(-1, places.flatten(-dimensions)).view(places.shape)
    factors = torch.randn(2, *expected.shape).double()
    mine = torch.autograd.grad((factors[0] * found.loc + factors[1] * found.variance).sum(), [mean, variance])
    theirs = torch.autograd.grad((factors[0] * expected + factors[1] * chosen).sum(), [mean, variance])
    torch.testing.assert_close(mine, theirs)


def test_the_largest_error_of_a_maximum_is_the_stated_one() -> None:
    """2x2 windows of equal means: 1.03 deviations and 0.49 of the variance."""
    x = Gaussian(torch.zeros(1, 1, 2, 2).double(), torch.ones(1, 1, 2, 2).double())
    found, samples = moments_of(lambda x: F.max_pool2d(x, 2), x), sampled(lambda x: F.max_pool2d(x, 2), x)
    assert found.loc.item() == 0 and found.variance.item() == 1
    assert samples.mean().item() == pytest.approx(1.03, abs=5e-3 + 5 * 0.7 / len(samples) ** 0.5)
    assert samples.var().item() == pytest.approx(0.49, abs=5e-3 + 5 * 0.7 / len(samples) ** 0.5)


def test_elements_that_move_together_are_pooled_exactly() -> None:
    shared = uncertain(1, 1, 1, 1)
    offsets = torch.tensor([[[[0.0, 0.3], [-1.0, 0.2]]]]).double()
    found: Any = F.max_pool2d(shared + offsets, 2)
    samples = sampled(lambda x: F.max_pool2d(x + offsets, 2), shared)
    torch.testing.assert_close(found.variance, shared.variance)
    assert abs(samples.var().item() / shared.variance.item() - 1) < 5 * (2 / len(samples)) ** 0.5
