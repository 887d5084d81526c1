"""Any posterior with any prior: the KL is that of the full distributions."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from bayeslim import divergence, layers
from bayeslim.gaussian import Gaussian
from bayeslim.posteriors import Posterior
from bayeslim.priors import Normal
from contracts.cases import each
from contracts.dense import covariance
from contracts.members import ESTIMATORS, FACTORISED, KINGMA_VALID, POSTERIORS, PRIORS, over, perturbed

SHAPE = (3, 4)


def exact(name: str, mean: float | Tensor, std: float | Tensor) -> Tensor:
    """KL between the multivariate normals, by torch."""
    posterior = perturbed(name, SHAPE)
    ones = torch.ones(SHAPE, dtype=torch.float64)
    prior_mean, prior_std = (ones * mean).flatten(), (ones * std).flatten()
    q = MultivariateNormal(posterior.mean().flatten(), covariance(posterior))
    return kl_divergence(q, MultivariateNormal(prior_mean, prior_std.square().diag()))


@each("mean", [0.0, -0.4])
@each("std", [1.0, 0.3])
@each("name", POSTERIORS)
def test_normal_prior(name: str, mean: float, std: float) -> None:
    value = divergence.kl_divergence(perturbed(name, SHAPE), Normal(mean, std))
    torch.testing.assert_close(value, exact(name, mean, std), rtol=0, atol=1e-9)


@over("name", POSTERIORS)
def test_normal_prior_with_its_own_mean_and_std_per_weight(name: str) -> None:
    torch.manual_seed(3)
    mean, std = torch.randn(SHAPE, dtype=torch.float64), torch.rand(SHAPE, dtype=torch.float64) + 0.2
    value = divergence.kl_divergence(perturbed(name, SHAPE), Normal(mean, std))
    torch.testing.assert_close(value, exact(name, mean, std), rtol=0, atol=1e-9)


AT_THE_PRIOR: dict[str, dict[str, float]] = {
    "MeanField-bounded": {"scale": 0.5, "max_scale": 0.6},
    "Multiplicative": {"alpha": 0.25},
    "Multiplicative-bounded": {"alpha": 0.25},
    "KTied-1": {"scale": 0.5, "jitter": 0.0},
    "KTied-2": {"scale": 0.5, "jitter": 0.0},
    "KTied-3": {"scale": 0.5, "jitter": 0.0},
}


@over("name", POSTERIORS)
def test_kl_vanishes_at_the_prior(name: str) -> None:
    build: Callable[..., Posterior] = POSTERIORS[name]
    posterior = build(torch.ones(SHAPE, dtype=torch.float64), **AT_THE_PRIOR.get(name, {"scale": 0.5}))
    assert divergence.kl_divergence(posterior, Normal(1.0, 0.5)).item() == pytest.approx(0, abs=1e-12)


@over("name", POSTERIORS)
def test_gradients_of_the_kl(name: str) -> None:
    posterior = perturbed(name, SHAPE)
    parameters = tuple(posterior.parameters())

    def value(*_: Tensor) -> Tensor:
        return divergence.kl_divergence(posterior, Normal(0.1, 0.8))

    assert torch.autograd.gradcheck(value, parameters)


@over("dtype", [torch.bfloat16, torch.float16])
@over("name", POSTERIORS)
def test_half_precision_parameters_give_a_float32_kl(name: str, dtype: torch.dtype) -> None:
    """Against the float64 KL of the same rounded means: all else is float32."""
    half = perturbed(name, (24, 40)).to(dtype)
    value = divergence.kl_divergence(half, Normal())
    assert value.dtype == torch.float32
    expected = divergence.kl_divergence(copy.deepcopy(half).double(), Normal()).item()
    assert value.item() == pytest.approx(expected, rel=1e-5)


@over("name", ["MatrixNormal"])
@over("dtype", [torch.bfloat16, torch.float16])
def test_total_correlation_in_half_precision_has_float32_digits(name: str, dtype: torch.dtype) -> None:
    half = perturbed(name, (50, 80)).to(dtype)
    expected = copy.deepcopy(half).double().total_correlation().item()
    assert half.total_correlation().item() == pytest.approx(expected, rel=1e-5)


@each("prior", PRIORS)
@over("posterior", POSTERIORS)
def test_every_combination_trains_or_is_refused(posterior: str, prior: str) -> None:
    """Loss and gradients of a layer are finite for all valid triples; the others raise."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    for name, estimator in ESTIMATORS.items():
        torch.manual_seed(1)
        options = {"posterior": POSTERIORS[posterior], "prior": PRIORS[prior](), "estimator": estimator}
        if prior == "LogUniform-kingma" and posterior not in KINGMA_VALID:
            with pytest.raises(ValueError, match=r"holds only for alpha <= 1.*allows alpha up to inf"):
                layers.Linear(5, 4, **options)
            continue
        if name in ("flipout", "clipped_reparam") and posterior not in FACTORISED:
            with pytest.raises(TypeError, match=rf"{name} needs a factorised posterior, got MatrixNormal"):
                layers.Linear(5, 4, **options)
            continue
        layer = layers.Linear(5, 4, **options)
        output = layer(x)
        if isinstance(output, Gaussian):
            output = output.loc.square() + output.variance
        loss = output.square().mean() + layer.kl()
        loss.backward()
        assert math.isfinite(loss.item())
        for parameter, tensor in layer.named_parameters():
            assert tensor.grad is not None, parameter
            assert bool(tensor.grad.isfinite().all()), parameter
