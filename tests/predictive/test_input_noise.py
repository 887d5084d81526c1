"""Noise on the inputs, by moments and by sampling, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

import bayeslim as bl
from contracts.members import over

NOISE = bl.likelihoods.Gaussian(noise=0.5)


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2).double()


def expected(layer: nn.Linear, variance: torch.Tensor) -> torch.Tensor:
    """`Var[W x] = W^2 v`."""
    return (layer.weight.square() @ variance).detach()


@over("method", ["moments", "taylor"])
def test_moments_of_a_plain_layer_are_exact(method: Any) -> None:
    layer, x = linear(), torch.randn(4, 3, dtype=torch.float64)
    per_feature = torch.tensor([0.1, 0.0, 2.0], dtype=torch.float64)
    for variance, full in ((0.3, torch.full((3,), 0.3).double()), (per_feature, per_feature)):
        prediction = bl.predict(layer, x, likelihood=NOISE, method=method, input_variance=variance)
        torch.testing.assert_close(prediction.mean, layer(x).detach())
        torch.testing.assert_close(prediction.epistemic, expected(layer, full).expand(4, 2), rtol=1e-6, atol=0)
        torch.testing.assert_close(prediction.aleatoric, torch.full((4, 2), 0.25))


def test_sampling_draws_the_inputs() -> None:
    layer, x, count = linear(), torch.randn(4, 3, dtype=torch.float64), 20_000
    prediction = bl.predict(layer, x, likelihood=NOISE, samples=count, input_variance=0.3, seed=0)
    variance = expected(layer, torch.full((3,), 0.3).double()).expand(4, 2)
    error = (prediction.epistemic - variance).abs() / (variance * math.sqrt(2 / count))
    assert error.max() < 5


def test_noise_adds_to_the_posterior() -> None:
    """One Bayesian layer: `Var = Var_W[W x] + E[W^2] v`, whichever way."""
    torch.manual_seed(1)
    layer = bl.layers.Linear(3, 2, dtype=torch.float64, posterior=lambda w: bl.posteriors.MeanField(w, scale=0.4))
    x, spread = torch.randn(4, 3, dtype=torch.float64), 0.2
    squares = layer.weight.mean().square() + layer.weight.variance()
    variance = (x.square() @ layer.weight.variance().T + spread * squares.sum(1)).detach()
    exact = bl.predict(layer, x, likelihood=NOISE, method="moments", input_variance=spread)
    torch.testing.assert_close(exact.epistemic, variance)
    drawn = bl.predict(layer, x, likelihood=NOISE, samples=20_000, input_variance=spread, seed=2)
    assert (drawn.epistemic / variance - 1).abs().max() < 0.1  # products of Gaussians have heavier tails


def test_more_noise_means_more_to_learn() -> None:
    model = bl.mlp([3, 8, 4])
    x = torch.randn(20, 3)
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "method": "moments", "seed": 0}
    information = [
        bl.predict(model, x, input_variance=variance, **options).mutual_information.mean()
        for variance in (0.0, 1.0, 10.0)
    ]
    assert information[0] < information[1] < information[2]
