"""NUTS against a posterior in closed form, and on a small network."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import bayeslim as bl
from baselines.linear_regression import NOISE, PRIOR_STD, drawn, layer, posterior, problem
from bayeslim.baselines import nuts
from contracts.members import over
from contracts.statistics import assert_within

GAUSSIAN = bl.likelihoods.Gaussian(noise=NOISE)


def test_linear_regression() -> None:
    """Mean, variances and covariances within five standard errors at the effective sample size."""
    stats = pytest.importorskip("pyro.ops.stats")
    mean, covariance = posterior()
    draws = drawn(nuts(layer(), *problem(), likelihood=GAUSSIAN, prior_std=PRIOR_STD, samples=800, warmup=200))
    assert draws.shape == (800, 3)
    size = stats.effective_sample_size(draws[None]).clamp_max(800)
    assert size.min() > 200
    assert_within(draws.mean(0) - mean, (covariance.diagonal() / size).sqrt())
    centred = draws - mean
    products = (centred[:, :, None] * centred[:, None]).flatten(1)
    expected = covariance.flatten()
    spread = covariance.diagonal().outer(covariance.diagonal()).flatten() + expected.square()
    size = stats.effective_sample_size(products[None]).clamp_max(800)
    assert_within(products.mean(0) - expected, (spread / size).sqrt())


@pytest.mark.slow
def test_a_small_network_is_surer_where_it_saw_data() -> None:
    pytest.importorskip("pyro")
    torch.manual_seed(0)
    model = bl.models.mlp([1, 8, 1], "tanh")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.linspace(-1, 1, 16)[:, None]
    y = torch.sin(3 * x)
    state = torch.get_rng_state()
    options: dict[str, Any] = {"likelihood": bl.likelihoods.Gaussian(noise=0.1), "samples": 60, "warmup": 60}
    draws = nuts(model, x, y, **options)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    prediction = bl.predict(draws, torch.tensor([[0.0], [4.0]]))
    assert prediction.epistemic[1, 0] > 4 * prediction.epistemic[0, 0]
    assert bl.evaluate(draws, (x, y))["rmse"] < 0.15


def test_the_seed_repeats_it() -> None:
    pytest.importorskip("pyro")
    first, again, other = (
        drawn(nuts(layer(), *problem(), likelihood=GAUSSIAN, samples=3, warmup=5, seed=seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@over(
    "options, message",
    [
        ({"prior_std": 0.0}, "`prior_std` must be positive, got 0.0"),
        ({"samples": 0}, "`samples` must be a positive integer, got 0"),
        ({"warmup": 0}, "`warmup` must be a positive integer, got 0"),
        ({"likelihood": bl.likelihoods.Gaussian(1.0, learn_noise=True)}, "has parameters to learn"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    chosen: dict[str, Any] = {"likelihood": GAUSSIAN, **options}
    with pytest.raises(ValueError, match=message):
        nuts(layer(), *problem(), **chosen)


def test_without_pyro(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyro.infer", None)
    with pytest.raises(ImportError, match=r"NUTS needs pyro: pip install 'bayeslim\[baselines\]'"):
        nuts(layer(), *problem(), likelihood=GAUSSIAN)
