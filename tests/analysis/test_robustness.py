"""Noise of a stated ratio, what a classifier says about it, and magnitude pruning."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import SNRS, add_noise, magnitude_curve, noise_sweep, spearman
from bayeslim.posteriors import MeanField
from bayeslim.pruning import MAGNITUDE


def classifier(seed: int = 0, scale: float = 0.3) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.mlp([6, 8, 3], method="vdp", posterior=lambda init: MeanField(init, scale=scale))


def data(count: int = 64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, 6, generator=generator), torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("snr", SNRS)
def test_the_ratio_is_met_image_by_image(snr: float) -> None:
    scales = torch.tensor([0.1, 1.0, 30.0]).view(-1, 1, 1, 1)
    x = scales * torch.rand(3, 2, 60, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 4
    noise = (add_noise(x, snr, seed=3) - x).flatten(1)
    expected = x.flatten(1).var(1, unbiased=False) / 10 ** (snr / 10)
    pixels = noise.shape[1]
    error = (noise.square().mean(1) - expected) / (expected * math.sqrt(2 / pixels))
    assert bool((error.abs() < 5).all())
    assert bool((noise.mean(1).abs() < 5 * (expected / pixels).sqrt()).all())


def test_noise_is_reproducible_not_clipped_and_scales() -> None:
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    before = torch.get_rng_state()
    first, again, other = add_noise(x, -6), add_noise(x, -6), add_noise(x, -6, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.min() < 0 and first.max() > 1
    torch.testing.assert_close((first - x) / 10 ** (46 / 20), add_noise(x, 40) - x, rtol=1e-2, atol=1e-6)
    constant = torch.full((2, 3), 0.7)
    assert torch.equal(add_noise(constant, -6), constant)


@pytest.mark.parametrize("method", ["moments", "sample", "mean"])
def test_a_sweep_is_made_of_predictions(method: Any) -> None:
    model, (x, y) = classifier(), data()
    likelihood = bl.Categorical()
    points = noise_sweep(model, x, y, [-6, 10], method=method, samples=20, likelihood=likelihood, seed=7)
    assert [point.snr for point in points] == [-6, 10]
    for point in points:
        noisy = add_noise(x, point.snr, seed=7)
        expected = bl.predict(model, noisy, method=method, samples=20, likelihood=likelihood, seed=7)
        rows, classes = torch.arange(len(x)), expected.mean.argmax(1)
        assert point.accuracy == pytest.approx((classes == y).double().mean().item())
        assert point.variance == pytest.approx(expected.epistemic[rows, classes].mean().item(), rel=1e-5)
        assert point.entropy == pytest.approx(expected.entropy.mean().item(), rel=1e-5)
        assert (point.variance > 0) == (method != "mean")


def test_noise_costs_accuracy() -> None:
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = (x[:, 0] > 0).long()
    model = bl.mlp([6, 8, 2], method="ard")
    bl.fit(model, (x, y), likelihood=bl.Categorical(), epochs=20, lr=1e-2, seed=0, batch_size=50)
    points = noise_sweep(model, x, y, method="mean")
    assert [point.snr for point in points] == list(SNRS)
    assert points[-1].accuracy > 0.95 > 0.8 > points[0].accuracy


def test_sweep_errors() -> None:
    model, (x, y) = classifier(), data()
    likelihood = bl.Categorical()
    with pytest.raises(ValueError, match=r"`y` must hold 64 integer labels, .* got torch.int64 of shape \(63,\)"):
        noise_sweep(model, x, y[1:], likelihood=likelihood)
    with pytest.raises(ValueError, match="integer labels, one per input, got torch.float32"):
        noise_sweep(model, x, y.float(), likelihood=likelihood)
    with pytest.raises(ValueError, match="needs a classifier with one output per class, got the likelihood Gaussian"):
        noise_sweep(model, x, y, likelihood=bl.likelihoods.Gaussian())
    with pytest.raises(TypeError, match="`x` must be floating point to take noise, got torch.int64"):
        add_noise(y[:, None], 3)
    with pytest.raises(ValueError, match="`snr_db` must be finite, got nan"):
        add_noise(x, math.nan)
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        add_noise(x, 3, seed=-1)


def smallest_zeroed(model: nn.Module, fraction: float) -> nn.Module:
    """A plain copy of the means in which the globally smallest weights are zero."""
    plain = cast(nn.Module, bl.collapse_(copy.deepcopy(model)))
    weights = [module.weight for module in plain.modules() if isinstance(module, nn.Linear)]
    flat = torch.cat([weight.detach().abs().flatten() for weight in weights])
    count = round(fraction * len(flat))
    cut = flat.sort().values[count - 1] if count else -1.0
    with torch.no_grad():
        for weight in weights:
            weight[weight.abs() <= cut] = 0.0
    return plain


@pytest.mark.parametrize("plain", [False, True])
def test_the_curve_removes_the_globally_smallest_weights(plain: bool) -> None:
    model, pair = classifier(), data()
    fractions = [0.0, 0.3, 0.9, 0.99]
    likelihood = bl.Categorical()
    tested = cast(nn.Module, bl.collapse_(copy.deepcopy(model))) if plain else model
    before = copy.deepcopy(tested.state_dict())
    points = magnitude_curve(tested, pair, fractions, likelihood=likelihood)
    assert [point.fraction for point in points] == fractions
    assert before.keys() == tested.state_dict().keys()
    assert all(torch.equal(value, before[name]) for name, value in tested.state_dict().items())
    for point in points:
        expected = bl.evaluate(smallest_zeroed(model, point.fraction), pair, samples=0, likelihood=likelihood)
        assert point.scores == pytest.approx(expected, rel=1e-5)
    assert len({point.scores["nll"] for point in points}) == 4


def test_the_curve_can_average_samples() -> None:
    model, pair = classifier(), data()
    likelihood = bl.Categorical()
    point = magnitude_curve(model, pair, [0.5], samples=5, likelihood=likelihood, seed=3)[0]
    pruned = copy.deepcopy(model)
    bl.prune_(pruned, MAGNITUDE, amount=0.5)
    assert point.scores == bl.evaluate(pruned, pair, samples=5, likelihood=likelihood, seed=3)


def test_curve_errors() -> None:
    model, pair = classifier(), data()
    with pytest.raises(ValueError, match=r"`amount` must lie in \[0, 1\), got 1.0"):
        magnitude_curve(model, pair, [1.0], likelihood=bl.Categorical())
    with pytest.raises(ValueError, match="likelihood"):
        magnitude_curve(model, pair, [0.5])


def test_ranks_against_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    for high in (3, 50):  # many ties, few ties
        a, b = torch.randint(0, high, (2, 20), generator=generator).double()
        expected = cast(Any, spearmanr(a.numpy(), b.numpy())).statistic
        assert spearman(a, b) == pytest.approx(expected, abs=1e-12)
    assert spearman([1, 2, 3], [5, 6, 60]) == pytest.approx(1)
    assert spearman([1, 2, 3], [-5, -6, -60]) == pytest.approx(-1)
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    with pytest.raises(ValueError, match="same number of values, at least 2, got 2, 3"):
        spearman([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="at least 2, got 1, 1"):
        spearman([1], [1])
    with pytest.raises(ValueError, match="must not hold NaN"):
        spearman([1, math.nan], [1, 2])
