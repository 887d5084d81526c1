"""The named methods and the perceptron they build."""

from __future__ import annotations

import functools
import math
from typing import Any

import pytest
import torch
from torch import nn

from bayeslim import METHODS, estimators, kl, layers, mean_only, mlp, models, nelbo, using
from bayeslim.likelihoods import Categorical
from bayeslim.likelihoods import Gaussian as GaussianNoise
from bayeslim.models.mlp import Sin
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative
from bayeslim.priors import ARD, GammaARD, LogUniform, Normal, ScaleMixture
from contracts.members import over

TRIPLES = {
    "graves": (MeanField, Normal, estimators.weight_sample),
    "bbb": (MeanField, ScaleMixture, estimators.weight_sample),
    "molchanov": (MeanField, LogUniform, estimators.local_reparam),
    "kingma": (Multiplicative, LogUniform, estimators.local_reparam),
    "ard": (MeanField, ARD, estimators.local_reparam),
    "gamma": (MeanField, GammaARD, estimators.local_reparam),
    "k-tied": (KTied, Normal, estimators.weight_sample),
    "vdp": (MeanField, Normal, estimators.moments),
}


def bayesian(model: nn.Module) -> list[layers.Linear]:
    return [module for module in model.modules() if isinstance(module, layers.Linear)]


def test_every_method_is_the_triple_it_names() -> None:
    assert set(METHODS) == set(TRIPLES)
    for name, (posterior, prior, estimator) in TRIPLES.items():
        for layer in bayesian(mlp([3, 4, 2], method=name)):
            assert type(layer.weight) is posterior
            assert type(layer.prior) is prior
            assert layer.estimator is estimator


def test_details_of_the_presets() -> None:
    kingma = bayesian(mlp([3, 2], method="kingma"))[0]
    assert kingma.weight.max_alpha == 1.0
    assert kingma.prior.config() == {"fit": "kingma"}
    gamma = bayesian(mlp([3, 2], method="gamma"))[0]
    assert gamma.weight.config()["max_scale"] == pytest.approx(math.exp(-4))
    assert gamma.prior.config() == {"a": 0.51, "b": 1e-8}
    ranks = [layer.weight.config() for layer in bayesian(mlp([1, 3, 2, 1], method="k-tied"))]
    assert ranks == [{"k": 1}, {"k": 2}, {"k": 1}]
    assert bayesian(mlp([3, 2], method="graves"))[0].prior.config() == {"mean": 0.0, "std": 1.0}


PRESETS: dict[str, tuple[dict[str, Any], float]] = {
    "graves": ({"mean": 0.0, "std": 1.0}, math.exp(-5)),
    "bbb": ({"pi": 0.5, "wide": 1.0, "narrow": pytest.approx(math.exp(-6)), "nodes": 24}, math.exp(-5)),
    "molchanov": ({"fit": "molchanov"}, math.exp(-5)),
    "kingma": ({"fit": "kingma"}, math.sqrt(0.1)),
    "ard": ({}, math.exp(-5)),
    "gamma": ({"a": 0.51, "b": 1e-8}, math.exp(-5)),
    "k-tied": ({"mean": 0.0, "std": 0.3}, 0.01),
    "vdp": ({"mean": 0.0, "std": 1.0}, 0.1 * math.sqrt(2 / 50)),
}
"""Priors as published, and initial standard deviations; of kingma relative to the mean, `sqrt(alpha)`."""


@over("method", METHODS)
def test_priors_and_initial_scales_of_the_presets(method: str) -> None:
    torch.manual_seed(0)
    layer = bayesian(mlp([50, 40], method=method))[0]
    prior, scale = PRESETS[method]
    assert layer.prior.config() == prior
    stds = layer.weight.variance().sqrt() / (layer.weight.mean().abs() if method == "kingma" else 1)
    if method == "k-tied":  # logs of the factors vary by 0.1: 1 % above on average, with a standard error of 1.5 %
        assert stds.mean().item() == pytest.approx(1.01 * scale, rel=5 * 0.015)
    else:
        torch.testing.assert_close(stds, torch.full_like(stds, scale))


@over("task", ["classes", "values"])
@over("method", METHODS)
def test_every_method_has_a_finite_loss_and_gradients(method: str, task: str) -> None:
    torch.manual_seed(0)
    model, x = mlp([5, 6, 4, 3], method=method), torch.randn(8, 5)
    likelihood = Categorical() if task == "classes" else GaussianNoise(noise=0.5)
    y = torch.randint(3, (8,)) if task == "classes" else torch.randn(8, 3)
    loss = nelbo(model, x, y, likelihood=likelihood, num_data=100).loss
    loss.backward()
    assert math.isfinite(loss.item())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.isfinite().all()), name
        assert bool(parameter.grad.any()), name


@over("method", METHODS)
def test_a_few_steps_lower_the_loss(method: str) -> None:
    torch.manual_seed(1)
    model, x = mlp([4, 8, 1], method=method), torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    likelihood = GaussianNoise(noise=0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = nelbo(model, x, y, likelihood=likelihood, num_data=1000).loss
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@over("method", METHODS)
def test_a_trained_network_is_reproduced_by_the_means(method: str) -> None:
    torch.manual_seed(2)
    plain, x = models.mlp([4, 6, 5, 2], "tanh"), torch.randn(7, 4)
    model = mlp([4, 6, 5, 2], "tanh", method=method, init=plain)
    with using(model, mean_only):
        torch.testing.assert_close(model(x), plain(x), rtol=1e-6, atol=1e-6)
    before = plain(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    assert torch.equal(plain(x), before)


def test_random_init_is_he_normal_with_zero_biases() -> None:
    torch.manual_seed(3)
    first = bayesian(mlp([100, 200, 2]))[0]
    count = 100 * 200
    assert first.weight.mean().square().mean().item() == pytest.approx(0.02, rel=5 * math.sqrt(2 / count))
    assert isinstance(first.bias, nn.Parameter)
    assert not bool(first.bias.any())


def test_activations_per_layer() -> None:
    model = mlp([3, 4, 5, 6, 2], ["tanh", Sin, "relu"], final_activation="sigmoid")
    kinds = [type(module) for module in model if not isinstance(module, layers.Linear)]
    assert kinds == [nn.Tanh, Sin, nn.ReLU, nn.Sigmoid]


def test_initial_log_variance() -> None:
    for method in ("graves", "molchanov", "gamma"):
        layer = bayesian(mlp([3, 2], method=method, init_log_variance=-12.0))[0]
        torch.testing.assert_close(layer.weight.variance().log(), torch.full((2, 3), -12.0))
    tied = functools.partial(KTied, k=2, jitter=0.0)
    layer = bayesian(mlp([3, 2], posterior=tied, init_log_variance=-6.0))[0]
    torch.testing.assert_close(layer.weight.variance().log(), torch.full((2, 3), -6.0))


def test_parts_can_be_replaced() -> None:
    model = mlp(
        [3, 4, 2],
        method="molchanov",
        posterior=MatrixNormal,
        prior=ARD(),
        estimator=estimators.weight_sample,
        bias_posterior=MeanField,
        bias_prior=Normal(0.0, 3.0),
    )
    for layer in bayesian(model):
        assert isinstance(layer.weight, MatrixNormal)
        assert isinstance(layer.prior, ARD)
        assert layer.estimator is estimators.weight_sample
        assert isinstance(layer.bias, MeanField)
        assert layer.bias_prior.config() == {"mean": 0.0, "std": 3.0}
    assert all(layer.bias is None for layer in bayesian(mlp([3, 4, 2], bias=False)))


def test_networks_do_not_share_priors_or_posteriors() -> None:
    one, two = mlp([3, 3, 3]), mlp([3, 3, 3])
    parts = [part for model in (one, two) for layer in bayesian(model) for part in (layer.weight, layer.prior)]
    assert len({id(part) for part in parts}) == len(parts)
    assert kl(one).item() > 0


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown `method` 'svi': choose from graves, bbb, molchanov"):
        mlp([2, 2], method="svi")
    with pytest.raises(ValueError, match=r"`init` must be 'random' or a trained network, got 'zeros'"):
        mlp([2, 2], init="zeros")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"the new network has \[\(3, 2\)\], `init` has \[\(2, 2\)\]"):
        mlp([2, 3], init=nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"same nn.Linear layers \(weights and biases\)"):
        mlp([2, 3], init=nn.Linear(2, 3, bias=False))
    with pytest.raises(ValueError, match=r"`init_log_variance` does not apply to the Multiplicative"):
        mlp([2, 3], method="kingma", init_log_variance=-10)
    for value in (-100.0, 30.0, math.nan):
        with pytest.raises(ValueError, match=r"`init_log_variance` must lie in \[-80, 20\], got"):
            mlp([2, 3], init_log_variance=value)
    with pytest.raises(ValueError, match=r"`fit='kingma'` holds only for alpha <= 1, and MeanField"):
        mlp([2, 3], method="kingma", posterior=MeanField)
