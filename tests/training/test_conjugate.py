"""Training finds the exact posterior where it is known: linear regression with known noise."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, PosteriorFactory
from training.conjugate import Regression, regression

COPIES = 1600
"""Outputs with the same targets: each learns its own posterior from its own noise."""


def trained(
    problem: Regression, posterior: PosteriorFactory, estimator: Callable[..., Any], epochs: int, lr: float
) -> bl.layers.Linear:
    """Fit one linear layer on full batches, the learning rate falling to zero."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(
        problem.x.shape[1],
        problem.y.shape[1],
        bias=False,
        posterior=posterior,
        prior=bl.priors.Normal(problem.prior_mean, problem.prior_std),
        estimator=estimator,
        dtype=torch.float64,
    )
    bl.fit(
        layer,
        (problem.x, problem.y),
        likelihood=Gaussian(problem.noise),
        epochs=epochs,
        batch_size=len(problem.x),
        optimizer=functools.partial(torch.optim.SGD, lr=lr, momentum=0.9),
        lr_schedule=bl.schedules.constant_then_linear(0.3),
        seed=0,
    )
    return layer


def negative_elbo(layer: bl.layers.Linear, problem: Regression) -> float:
    """In nats for the whole data set; exact, since one layer propagates moments without error."""
    with bl.using(layer, bl.moments):
        result = bl.nelbo(layer, problem.x, problem.y, likelihood=Gaussian(problem.noise), num_data=len(problem.x))
    return len(problem.x) * result.loss.item()


@pytest.mark.parametrize("estimator", [bl.weight_sample, bl.local_reparam])
def test_sampling_estimators_find_the_posterior(estimator: Callable[..., Any]) -> None:
    """Means within 2 % of a posterior deviation and variances within 2 %, averaged over copies."""
    problem = regression(num_data=16, inputs=3, outputs=1)
    copies = Regression(problem.x, problem.y.expand(-1, COPIES), 0.5, problem.prior_mean, problem.prior_std)
    weight = trained(copies, functools.partial(MeanField, scale=0.1), estimator, epochs=900, lr=0.01).weight
    mean_error = (weight.mean() - problem.mean) / problem.factorised_variance.sqrt()
    variance_error = (weight.variance() / problem.factorised_variance).log()
    for error in (mean_error, variance_error):
        standard_error = error.std(0) / math.sqrt(COPIES)
        assert standard_error.max() < 0.004
        assert (error.mean(0).abs() < 0.02).all(), error.mean(0)
    # The problem tells the best factorised variances from the true marginal ones, which are 48 % larger.
    assert (problem.precision.inverse().diagonal() / problem.factorised_variance).max() > 1.4


@pytest.mark.parametrize(
    "posterior",
    [
        functools.partial(MeanField, scale=0.1),
        functools.partial(KTied, k=1, scale=0.1),
        functools.partial(KTied, k=2, scale=0.1),
    ],
)
def test_factorised_posteriors_reach_the_factorised_optimum(posterior: PosteriorFactory) -> None:
    """Without sampling noise every mean and variance is right, and so is the bound."""
    problem = regression(num_data=32)
    layer = trained(problem, posterior, bl.moments, epochs=400, lr=0.05)
    assert torch.allclose(layer.weight.mean(), problem.mean, rtol=0, atol=1e-3 * problem.mean.abs().min().item())
    expected = problem.factorised_variance.expand(2, -1)
    assert torch.allclose(layer.weight.variance(), expected, rtol=0.005)
    bound = problem.negative_log_evidence + problem.factorised_gap
    assert negative_elbo(layer, problem) == pytest.approx(bound, abs=1e-4)


def test_matrix_normal_reaches_the_exact_evidence() -> None:
    """The posterior is the same for both outputs: `A_in (x) I`, which a matrix normal can say exactly."""
    problem = regression(num_data=32)
    layer = trained(problem, functools.partial(MatrixNormal, scale=0.1), bl.moments, epochs=400, lr=0.05)
    exact = problem.precision.inverse()
    assert torch.allclose(layer.weight.mean(), problem.mean, rtol=0, atol=1e-4)
    assert torch.allclose(layer.weight.variance(), exact.diagonal().expand(2, -1), rtol=0.02)
    found = negative_elbo(layer, problem)
    assert found >= problem.negative_log_evidence - 1e-5  # the noise is kept in float32
    assert found == pytest.approx(problem.negative_log_evidence, abs=0.01)
    assert problem.factorised_gap > 1.7  # so mean field is clearly worse here


def test_no_posterior_beats_the_evidence() -> None:
    """`-ELBO >= -ln p(y)` whatever the parameters are."""
    problem = regression(num_data=32)
    for seed in range(20):
        torch.manual_seed(seed)
        for posterior in (MeanField, KTied, MatrixNormal):
            layer = bl.layers.Linear(
                4,
                2,
                bias=False,
                posterior=posterior,
                prior=bl.priors.Normal(problem.prior_mean, problem.prior_std),
                dtype=torch.float64,
            )
            with torch.no_grad():
                for name in layer.weight.scale_parameters:
                    scale = layer.weight.get_parameter(name)
                    scale.add_(torch.randn_like(scale))
                layer.weight.get_parameter("loc").copy_(problem.mean + 0.1 * torch.randn_like(problem.mean))
            assert negative_elbo(layer, problem) > problem.negative_log_evidence


def test_the_sampled_objective_estimates_the_exact_one() -> None:
    """Averages of one-sample losses against the closed form, within 5 standard errors."""
    problem = regression(num_data=32)
    torch.manual_seed(0)
    layer = trained(problem, functools.partial(MeanField, scale=0.1), bl.moments, epochs=5, lr=0.05)
    likelihood = Gaussian(problem.noise)
    for estimator in (bl.weight_sample, bl.local_reparam, bl.flipout):
        with bl.using(layer, estimator), torch.no_grad():
            losses = torch.stack(
                [bl.nelbo(layer, problem.x, problem.y, likelihood=likelihood, num_data=32).loss for _ in range(400)]
            )
        error = losses.mean().item() - negative_elbo(layer, problem) / 32
        assert abs(error) < 5 * losses.std().item() / math.sqrt(400)
