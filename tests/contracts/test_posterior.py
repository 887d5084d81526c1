"""What every posterior promises, against its full covariance."""

from __future__ import annotations

import copy

import pytest
import torch

from bayeslim.posteriors import Posterior
from contracts.cases import each
from contracts.dense import FixedNoise, covariance, noise_map, output_covariance
from contracts.members import INDEX_OPS, OPS, POSTERIORS, over, perturbed
from contracts.statistics import assert_gaussian_moments, draws

LINEAR, CONV = (4, 5), (4, 2, 3, 2)
SHAPES = {"linear": LINEAR, "conv": CONV}
DRAWS = 20_000


def parameters(posterior: Posterior) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in posterior.parameters()]


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_draws_have_the_stated_mean_and_variance(name: str, shape: str) -> None:
    posterior = perturbed(name, SHAPES[shape], seed=1)
    samples = draws(posterior.rsample, DRAWS, seed=2)
    assert_gaussian_moments(samples, posterior.mean().detach(), posterior.variance().detach())


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_draws_are_affine_in_fresh_noise_with_the_stated_variance(name: str, shape: str) -> None:
    posterior = perturbed(name, SHAPES[shape], seed=3)
    mean, matrix = noise_map(posterior.rsample)
    assert torch.equal(mean, posterior.mean().flatten())
    noise = torch.randn(matrix.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    with FixedNoise(noise):
        drawn = posterior.rsample().flatten()
    torch.testing.assert_close(drawn, mean + matrix @ noise, rtol=1e-12, atol=1e-12)
    stated = posterior.variance().flatten()
    torch.testing.assert_close(matrix.square().sum(1), stated, rtol=1e-12, atol=0)
    torch.manual_seed(5)
    assert not torch.equal(posterior.rsample(), posterior.rsample())


@over("name", POSTERIORS)
def test_factorised_means_a_diagonal_covariance(name: str) -> None:
    posterior = perturbed(name, LINEAR)
    full = covariance(posterior)
    correlated = bool((full - full.diagonal().diag()).abs().max() > 1e-6)
    assert correlated == (not posterior.factorised)


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_total_correlation_is_marginal_minus_joint_entropy(name: str, shape: str) -> None:
    posterior = perturbed(name, SHAPES[shape])
    full = covariance(posterior)
    expected = 0.5 * (full.diagonal().log().sum() - torch.linalg.slogdet(full).logabsdet)
    torch.testing.assert_close(posterior.total_correlation(), expected, rtol=0, atol=1e-9)
    assert posterior.total_correlation().shape == ()
    assert (expected.item() > 1e-3) == (not posterior.factorised)


@each("case", OPS | INDEX_OPS)
@over("name", POSTERIORS)
def test_output_variance_is_the_diagonal_of_the_dense_one(name: str, case: str) -> None:
    chosen = (OPS | INDEX_OPS)[case]
    op, x = chosen.op, chosen.input()
    posterior = perturbed(name, chosen.weight)
    stated = posterior.output_variance(op, x)
    assert stated.shape == op(x, posterior.mean()).shape
    expected = output_covariance(op, x, posterior).diagonal()
    torch.testing.assert_close(stated.flatten(), expected, rtol=1e-10, atol=1e-12)


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_gradients_reach_every_parameter(name: str, shape: str) -> None:
    posterior = perturbed(name, SHAPES[shape])
    for value in (posterior.rsample, lambda: posterior.mean() + posterior.variance()):
        posterior.zero_grad()
        value().square().sum().backward()
        for parameter, tensor in posterior.named_parameters():
            assert tensor.grad is not None, parameter
            assert bool(tensor.grad.isfinite().all()), parameter
            used = torch.ones_like(tensor).tril() if name == "MatrixNormal" and "factor" in parameter else 1
            assert bool((tensor.grad * used != 0).sum() == torch.as_tensor(used).expand_as(tensor).sum())


@over("name", POSTERIORS)
def test_scale_parameters_are_all_but_the_mean(name: str) -> None:
    posterior = perturbed(name, LINEAR)
    assert {*posterior.scale_parameters, "loc"} == {key for key, _ in posterior.named_parameters()}
    before = posterior.mean().detach().clone()
    with torch.no_grad():
        for parameter in posterior.scale_parameters:
            posterior.get_parameter(parameter).sub_(0.1)
    assert torch.equal(posterior.mean(), before)


@over("name", POSTERIORS)
def test_deepcopy_is_equal_and_independent(name: str) -> None:
    posterior = perturbed(name, CONV)
    twin = copy.deepcopy(posterior)
    assert torch.equal(twin.variance(), posterior.variance())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.sub_(0.5)
    assert not torch.equal(twin.mean(), posterior.mean())
    assert not torch.equal(twin.variance(), posterior.variance())


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_config_and_strict_state_rebuild_it(name: str, shape: str) -> None:
    posterior = perturbed(name, SHAPES[shape])
    fresh = type(posterior)(torch.zeros(SHAPES[shape], dtype=torch.float64), **posterior.config())
    fresh.load_state_dict(posterior.state_dict(), strict=True)
    torch.testing.assert_close(fresh.variance(), posterior.variance(), rtol=1e-12, atol=0)
    assert torch.equal(fresh.mean(), posterior.mean())
    torch.testing.assert_close(fresh.total_correlation(), posterior.total_correlation())
    assert fresh.config() == pytest.approx(posterior.config(), rel=1e-12)
    assert fresh.max_alpha == posterior.max_alpha


@over("dtype", [torch.float32, torch.float64])
@over("name", POSTERIORS)
def test_everything_has_the_dtype_of_the_weight(name: str, dtype: torch.dtype) -> None:
    posterior = POSTERIORS[name](torch.ones(LINEAR, dtype=dtype))
    values = [posterior.mean(), posterior.variance(), posterior.rsample(), posterior.total_correlation()]
    assert all(value.dtype == dtype for value in [*values, *parameters(posterior)])
    assert all(value.shape == LINEAR for value in values[:3])


@over("name", POSTERIORS)
def test_half_precision_keeps_small_variances(name: str) -> None:
    """A standard deviation of 1e-5 has the variance 1e-10, which is 0 in float16."""
    scale = {"alpha": 1e-10} if name.startswith("Multiplicative") else {"scale": 1e-5}
    posterior = POSTERIORS[name](torch.ones(LINEAR, dtype=torch.float16), **scale)  # pyright: ignore[reportCallIssue]
    assert posterior.variance().dtype == torch.float32
    assert posterior.rsample().dtype == torch.float16
    exact = copy.deepcopy(posterior).double().variance()
    torch.testing.assert_close(posterior.variance().double(), exact, rtol=1e-5, atol=0)
    assert bool((exact > 1e-11).all() and (exact < 1e-9).all())


@over("shape", SHAPES)
@over("name", POSTERIORS)
def test_builds_on_the_meta_device(name: str, shape: str) -> None:
    posterior = POSTERIORS[name](torch.empty(SHAPES[shape], device="meta"))
    assert all(parameter.is_meta for parameter in posterior.parameters())
    assert posterior.variance().shape == SHAPES[shape]
    twin = posterior.to_empty(device="cpu")
    twin.load_state_dict(perturbed(name, SHAPES[shape]).float().state_dict(), strict=True)
    assert bool((twin.variance() > 0).all())


@over("name", POSTERIORS)
def test_the_weight_given_is_copied_and_becomes_the_mean(name: str) -> None:
    weight = torch.randn(LINEAR, generator=torch.Generator().manual_seed(6))
    kept = weight.clone()
    posterior = POSTERIORS[name](weight)
    assert torch.equal(posterior.mean(), weight)
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.add_(1)
    assert torch.equal(weight, kept)
