"""Intervals against root finding, numpy and the coverage they promise."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.posteriors import MeanField
from contracts.statistics import assert_within


def prediction(likelihood: Likelihood, samples: int = 60, keep: bool = True) -> bl.Prediction:
    torch.manual_seed(0)
    model = bl.mlp([3, 8, 4], method="graves", init_log_variance=-1.0).double()
    x = torch.randn(5, 3, dtype=torch.float64)
    return bl.predict(model, x, samples=samples, likelihood=likelihood.double(), keep_samples=keep, seed=0)


@pytest.mark.parametrize("likelihood", [Gaussian(0.4), HeteroscedasticGaussian(floor=1e-3)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_regression_quantiles_are_roots_of_the_mixture(likelihood: Likelihood, level: float) -> None:
    """The distribution function of the mixture, noise included, inverted by Brent's method."""
    found = prediction(likelihood)
    lower, upper = found.interval(level)
    assert found.samples is not None and found.sample_variances is not None
    assert lower.shape == upper.shape == found.mean.shape
    means, stds = found.samples.numpy(), found.sample_variances.sqrt().numpy()
    for index in np.ndindex(*found.mean.shape):
        m, s = means[:, *index], stds[:, *index]
        for bound, tail in ((lower, 0.5 * (1 - level)), (upper, 0.5 * (1 + level))):
            root = optimize.brentq(
                lambda value, m=m, s=s, tail=tail: stats.norm.cdf(value, m, s).mean() - tail,
                (m - 15 * s).min(),
                (m + 15 * s).max(),
                xtol=1e-12,
            )
            assert bound[index].item() == pytest.approx(root, abs=1e-8)


@pytest.mark.parametrize("likelihood", [bl.Categorical(), bl.Bernoulli()])
@pytest.mark.parametrize("level", [0.3, 0.9])
def test_intervals_of_probabilities_are_numpys_quantiles(likelihood: Likelihood, level: float) -> None:
    found = prediction(likelihood)
    assert found.samples is not None
    lower, upper = found.interval(level)
    expected = np.quantile(found.samples.numpy(), [0.5 * (1 - level), 0.5 * (1 + level)], axis=0)
    np.testing.assert_allclose(lower, expected[0], rtol=1e-12)
    np.testing.assert_allclose(upper, expected[1], rtol=1e-12)


def test_normal_intervals() -> None:
    found = prediction(Gaussian(0.4), keep=False)
    lower, upper = found.interval(0.9, method="normal")
    z = float(stats.norm.ppf(0.95))
    assert torch.allclose(lower, found.mean - z * found.std) and torch.allclose(upper, found.mean + z * found.std)
    classes = prediction(bl.Categorical(), keep=False)
    lower, upper = classes.interval(0.99, method="normal")
    half = float(stats.norm.ppf(0.995)) * classes.epistemic.sqrt()
    assert torch.allclose(lower, (classes.mean - half).clamp(min=0))
    assert torch.allclose(upper, (classes.mean + half).clamp(max=1))
    assert (lower == 0).any() and (lower >= 0).all() and (upper <= 1).all()


def test_intervals_are_nested_and_hold_the_median() -> None:
    found = prediction(Gaussian(0.4))
    bounds = [found.interval(level) for level in (0.2, 0.5, 0.8, 0.95)]
    for (low, high), (lower, higher) in itertools.pairwise(bounds):
        assert (lower < low).all() and (high < higher).all() and (low < high).all()


def test_quantile_and_normal_intervals_agree_for_a_gaussian_predictive() -> None:
    """A linear model's predictive is Gaussian; the standard error of a quantile is known."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 1, posterior=lambda w: MeanField(w, scale=0.5))
    found = bl.predict(layer, torch.randn(4, 3), samples=4000, likelihood=Gaussian(0.3), seed=0)
    density = float(stats.norm.pdf(stats.norm.ppf(0.975)))
    error = found.std * math.sqrt(0.025 * 0.975 / 4000) / density
    for ours, theirs in zip(found.interval(0.95), found.interval(0.95, method="normal"), strict=True):
        assert_within(ours - theirs, error)


@pytest.mark.parametrize("method", ["quantile", "normal"])
def test_intervals_cover_what_they_promise(method: str) -> None:
    """Over 300 data sets drawn from the prior, the exact posterior's 90 % intervals cover 90 %."""
    torch.manual_seed(0)
    problems, size, noise = 300, 6, 0.5
    x, test = torch.randn(size, 2, dtype=torch.float64), torch.randn(8, 2, dtype=torch.float64)
    weights = torch.randn(2, problems, dtype=torch.float64)  # one network output per problem
    y = x @ weights + noise * torch.randn(size, problems, dtype=torch.float64)
    # Orthogonal inputs make the exact posterior factorised.
    x = torch.linalg.qr(x).Q * 2
    y = x @ weights + noise * torch.randn(size, problems, dtype=torch.float64)
    precision = (x.T @ x).diagonal() / noise**2 + 1
    layer = bl.layers.Linear(2, problems, bias=False, dtype=torch.float64)
    assert isinstance(layer.weight, MeanField)
    with torch.no_grad():
        layer.weight.loc.copy_((x.T @ y / noise**2 / precision[:, None]).T)
        layer.weight.log_scale.copy_(-0.5 * precision.log().expand(problems, -1))
    found = bl.predict(layer, test, samples=400, likelihood=Gaussian(noise), seed=0)
    lower, upper = found.interval(0.9, method=method)  # pyright: ignore[reportArgumentType]
    target = test @ weights + noise * torch.randn(8, problems, dtype=torch.float64)
    covered = ((lower <= target) & (target <= upper)).double().mean(0)
    # Test points of one problem share its weights; problems are independent.
    assert_within(covered.mean() - 0.9, covered.std() / math.sqrt(problems))


def test_a_trained_network_covers_new_data() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4300, 3, generator=generator)
    y = x @ torch.tensor([[1.0], [-1.0], [0.5]]) + 0.3 * torch.randn(4300, 1, generator=generator)
    torch.manual_seed(0)
    model = bl.mlp([3, 1], method="graves")
    likelihood = Gaussian(1.0, learn_noise=True)
    schedule = bl.schedules.constant_then_linear(0.3)
    bl.fit(model, (x[:300], y[:300]), likelihood=likelihood, epochs=60, lr=0.05, lr_schedule=schedule, seed=0)
    lower, upper = bl.predict(model, x[300:], samples=200, seed=0).interval(0.95)
    coverage = ((lower <= y[300:]) & (y[300:] <= upper)).double().mean()
    # The noise was learned from 300 residuals: its relative error of 1 / sqrt(600) moves the coverage too.
    density = float(stats.norm.pdf(1.96))
    assert_within(coverage - 0.95, math.sqrt(0.95 * 0.05 / 4000) + 2 * density * 1.96 / math.sqrt(600))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, 95.0, math.nan])
def test_levels_that_make_no_sense_are_refused(level: float) -> None:
    for method in ("quantile", "normal"):
        with pytest.raises(ValueError, match="`level` must lie between 0 and 1, got .*: pass e.g. 0.95"):
            prediction(Gaussian()).interval(level, method=method)  # pyright: ignore[reportArgumentType]


def test_other_errors() -> None:
    with pytest.raises(ValueError, match=r"samples were not kept.*keep_samples=True.*method='normal'"):
        prediction(Gaussian(), keep=False).interval()
    with pytest.raises(ValueError, match="`method` must be 'quantile' or 'normal', got 'bootstrap'"):
        prediction(Gaussian()).interval(method="bootstrap")  # pyright: ignore[reportArgumentType]


def test_the_likelihood_that_was_trained_with_decides() -> None:
    model = nn.Sequential(bl.layers.Linear(3, 2))
    remember_likelihood_(model, bl.Bernoulli())
    lower, upper = bl.predict(model, torch.zeros(1, 3), samples=5).interval(method="normal")
    assert (lower >= 0).all() and (upper <= 1).all()
