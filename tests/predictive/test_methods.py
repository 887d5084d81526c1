"""Predictions of other networks, likelihoods and methods than sampled classes."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian
from bayeslim.posteriors import MeanField
from contracts.statistics import assert_within

MeanField03 = functools.partial(MeanField, scale=0.3)


def classifier(method: str = "graves") -> nn.Sequential:
    torch.manual_seed(0)
    return bl.mlp([3, 8, 4], init_log_variance=-1.5, method=method)


def inputs(count: int = 5, features: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed))


def test_layers_that_sample_nothing_stay_so() -> None:
    model = nn.Sequential(bl.layers.Linear(3, 4, posterior=MeanField03, estimator=bl.mean_only))
    found = bl.predict(model, inputs(), samples=9, likelihood=bl.Categorical())
    assert torch.allclose(found.epistemic, torch.zeros(()), atol=1e-12)


def test_batch_statistics_and_dropout_are_off() -> None:
    """Every example is predicted as if alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    model(torch.randn(64, 3))
    statistics = {name: value.clone() for name, value in model.state_dict().items()}
    x = inputs()
    together = bl.predict(model, x, likelihood=bl.Categorical()).mean
    alone = torch.cat([bl.predict(model, row[None], likelihood=bl.Categorical()).mean for row in x])
    assert torch.allclose(together, alone, atol=1e-6)
    assert all(torch.equal(value, statistics[name]) for name, value in model.state_dict().items())


def test_a_plain_network_is_certain_of_its_weights() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 4), inputs()
    found = bl.predict(model, x, likelihood=bl.Categorical())
    assert torch.allclose(found.mean, model(x).softmax(1))
    assert (found.epistemic == 0).all() and torch.allclose(found.mutual_information, torch.zeros(5), atol=1e-6)
    assert found.samples is not None and len(found.samples) == 1


def test_the_mean_is_one_pass_with_the_posterior_mean() -> None:
    model, x = classifier(), inputs()
    found = bl.predict(model, x, likelihood=bl.Categorical(), method="mean")
    with bl.using(model, bl.mean_only):
        assert torch.allclose(found.mean, model(x).softmax(1))
    assert (found.epistemic == 0).all()


def test_moments_are_exact_for_a_linear_model() -> None:
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 2, posterior=MeanField03)
    x = inputs()
    found = bl.predict(layer, x, likelihood=Gaussian(0.5), method="moments")
    assert torch.allclose(found.mean, x @ layer.weight.mean().T + layer.bias)  # pyright: ignore
    assert torch.allclose(found.epistemic, x.square().sum(1, keepdim=True).expand(5, 2) * 0.09)
    assert torch.allclose(found.aleatoric, torch.tensor(0.25))
    assert torch.allclose(found.mutual_information, 0.5 * (found.total / 0.25).log(), atol=1e-6)
    assert found.samples is None


@pytest.mark.parametrize("likelihood", [bl.Categorical(), bl.Bernoulli()])
def test_moments_give_the_sampled_probabilities_of_one_layer(likelihood: Any) -> None:
    """Weights of different outputs are independent here, so the propagated moments tell everything."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 4, posterior=functools.partial(MeanField, scale=0.7))
    run = functools.partial(bl.predict, layer, inputs(), likelihood=likelihood, samples=8000, seed=0, keep_samples=True)
    exact, sampled = run(method="moments").samples, run(estimator=bl.weight_sample).samples
    assert exact is not None and sampled is not None
    assert_within(exact.mean(0) - sampled.mean(0), ((exact.var(0) + sampled.var(0)) / 8000).sqrt())


def test_networks_trained_with_moments_can_be_sampled() -> None:
    model, x = classifier(method="vdp"), inputs()
    same = classifier(method="graves")
    run = functools.partial(bl.predict, samples=4000, likelihood=bl.Categorical(), seed=0)
    ours, theirs = run(model, x), run(same, x)
    assert_within(ours.mean - theirs.mean, (2 * theirs.epistemic / 4000).sqrt())
    assert model[0].estimator is bl.moments


def test_heteroscedastic_noise_depends_on_the_input() -> None:
    torch.manual_seed(0)
    model, x = bl.mlp([3, 8, 4], method="graves", init_log_variance=-2.0), inputs()
    found = bl.predict(model, x, samples=300, likelihood=HeteroscedasticGaussian(floor=0.1), keep_samples=True, seed=0)
    assert found.mean.shape == (5, 2) and found.sample_variances is not None and found.samples is not None
    assert torch.allclose(found.aleatoric, found.sample_variances.mean(0))
    assert torch.allclose(found.epistemic, found.samples.var(0, correction=0), atol=1e-6)
    assert (found.sample_variances > 0.1).all() and found.aleatoric.std() > 0.01
    # The entropy of the moment-matched Gaussian bounds the mixture's, so the information is positive.
    assert (found.mutual_information >= 0).all() and found.mutual_information.shape == (5, 2)


def test_bernoulli_outputs_are_independent_probabilities() -> None:
    model, x = classifier(), inputs()
    found = bl.predict(model, x, samples=300, likelihood=bl.Bernoulli(), keep_samples=True, seed=0)
    assert found.samples is not None
    p = found.samples.double()
    assert torch.allclose(found.total.double(), p.mean(0) * (1 - p.mean(0)), rtol=1e-4)
    binary = torch.distributions.Bernoulli(p).entropy().mean(0)
    average = torch.distributions.Bernoulli(p.mean(0)).entropy()
    assert torch.allclose(found.mutual_information.double(), average - binary, atol=1e-5)
    assert found.entropy.shape == (5, 4)


def test_half_precision_networks_are_averaged_in_float32() -> None:
    model = classifier().to(torch.bfloat16)
    found = bl.predict(model, inputs(), samples=50, likelihood=bl.Categorical(), seed=0)
    assert found.mean.dtype == torch.float32
    assert torch.allclose(found.mean.sum(1), torch.ones(5), atol=1e-5)
    exact = bl.predict(classifier(), inputs(), samples=4000, likelihood=bl.Categorical(), seed=0)
    assert_within(found.mean - exact.mean, (exact.epistemic / 50).sqrt() + 2**-9)  # rounding of bfloat16


def test_gradients_are_not_kept() -> None:
    assert not bl.predict(classifier(), inputs(), samples=2, likelihood=bl.Categorical()).mean.requires_grad
