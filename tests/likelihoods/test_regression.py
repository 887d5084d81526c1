"""Real-valued targets against torch.distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, distributions

from bayeslim.gaussian import Gaussian as GaussianOutput
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, likelihood_of
from bayeslim.likelihoods.base import remember_likelihood_
from contracts.members import over
from contracts.statistics import assert_mean

LIKELIHOODS: list[Likelihood] = [Gaussian(0.3), HeteroscedasticGaussian()]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@over("noise", [0.1, 1.0, 7.0])
@over("outputs", [None, 3])
def test_gaussian_nll_and_moments(noise: float, outputs: int | None) -> None:
    likelihood = Gaussian(noise, outputs=outputs).double()
    with torch.no_grad():
        likelihood.log_noise += 0.1 * torch.arange(likelihood.log_noise.numel()).reshape(likelihood.log_noise.shape)
    output, y = normal(5, 3), normal(5, 3, seed=1)
    reference = distributions.Normal(output, likelihood.log_noise.exp().expand_as(output))
    torch.testing.assert_close(likelihood.nll(output, y), -reference.log_prob(y).sum(1))
    mean, variance, entropy = likelihood.conditional(output)
    torch.testing.assert_close(mean, reference.mean)
    torch.testing.assert_close(variance, reference.variance)
    torch.testing.assert_close(entropy, reference.entropy())
    torch.testing.assert_close(likelihood.predictive_entropy(mean, variance), reference.entropy())


def test_heteroscedastic_nll_and_moments() -> None:
    likelihood = HeteroscedasticGaussian(floor=0.01)
    output, y = normal(5, 6), normal(5, 3, seed=1)
    std = (0.01 + torch.nn.functional.softplus(output[:, 3:])).sqrt()
    reference = distributions.Normal(output[:, :3], std)
    torch.testing.assert_close(likelihood.nll(output, y), -reference.log_prob(y).sum(1))
    mean, variance, entropy = likelihood.conditional(output)
    torch.testing.assert_close(mean, reference.mean)
    torch.testing.assert_close(variance, reference.variance)
    torch.testing.assert_close(entropy, reference.entropy())


def test_squared_error_is_a_noise_variance_of_one_half() -> None:
    output, y = normal(5, 1), normal(5, 1, seed=1)
    value = Gaussian(math.sqrt(0.5)).double().nll(output, y) - 0.5 * math.log(math.pi)
    torch.testing.assert_close(value, (y - output).square()[:, 0], rtol=1e-6, atol=1e-7)


def test_expected_nll_of_a_gaussian_output_is_exact() -> None:
    likelihood = Gaussian(0.4, outputs=2).double()
    output, y = GaussianOutput(normal(4, 2), normal(4, 2, seed=1).square()), normal(4, 2, seed=2)
    torch.manual_seed(3)
    many = output.loc + output.scale * torch.randn(100_000, 4, 2, dtype=torch.float64)
    sampled = likelihood.nll(many.flatten(0, 1), y.repeat(100_000, 1)).view(100_000, 4)
    assert_mean(sampled.detach(), likelihood.expected_nll(output, y))
    torch.testing.assert_close(likelihood.expected_nll(output.loc, y), likelihood.nll(output.loc, y))


def test_expected_nll_of_the_heteroscedastic_one_is_an_unbiased_draw() -> None:
    """Certain raw variances make the closed form known: `variance / (2 v)` on top of the nll."""
    likelihood = HeteroscedasticGaussian()
    mean, spread = normal(3, 2), normal(3, 2, seed=1).square()
    spread[:, 1] = 0
    output, y = GaussianOutput(mean, spread), normal(3, 1, seed=2)
    noise = likelihood.split(mean)[1][:, 0]
    expected = likelihood.nll(mean, y) + 0.5 * spread[:, 0] / noise
    torch.manual_seed(4)
    sampled = torch.stack([likelihood.expected_nll(output, y) for _ in range(5_000)])
    error = (sampled.mean(0) - expected).abs()
    assert bool((error < 5 * sampled.std(0) / 5_000**0.5 + 1e-6).all())  # rsample has a floor of 1e-8


def test_learned_noise_has_a_gradient_and_its_optimum_is_the_residual() -> None:
    likelihood = Gaussian(0.5, learn_noise=True).double()
    output, y = normal(400, 1), normal(400, 1, seed=1)
    with torch.no_grad():
        likelihood.log_noise.copy_((y - output).square().mean().sqrt().log())
    likelihood.nll(output, y).mean().backward()
    assert likelihood.log_noise.grad is not None
    assert likelihood.log_noise.grad.item() == pytest.approx(0, abs=1e-10)
    assert not list(Gaussian(0.5).parameters())


def test_config_and_state_rebuild_them() -> None:
    for likelihood in (
        Gaussian(0.3),
        Gaussian(0.3, learn_noise=True, outputs=2),
        HeteroscedasticGaussian(0.1),
    ):
        twin = type(likelihood)(**likelihood.config())
        twin.load_state_dict(likelihood.state_dict(), strict=True)
        output, y = torch.ones(2, 4), torch.zeros(2, 2 if isinstance(twin, HeteroscedasticGaussian) else 4)
        if isinstance(likelihood, Gaussian) and likelihood.outputs == 2:
            output, y = torch.ones(2, 2), torch.zeros(2, 2)
        assert torch.equal(twin.nll(output, y), likelihood.nll(output, y))


@over("likelihood", LIKELIHOODS)
def test_targets_of_one_axis_are_columns(likelihood: Likelihood) -> None:
    """Broadcasting (batch,) against (batch, 1) would compare every example with every other."""
    output = torch.randn(4, 1 if isinstance(likelihood, Gaussian) else 2, generator=torch.Generator().manual_seed(5))
    y = torch.arange(4.0)
    assert torch.equal(likelihood.nll(output, y), likelihood.nll(output, y[:, None]))
    checked = likelihood.check_targets(y, output.shape)
    assert torch.equal(checked, y[:, None])
    assert likelihood.check_targets(torch.arange(4), output.shape).dtype == torch.float32


@over("likelihood", LIKELIHOODS)
def test_targets_of_another_shape_are_refused(likelihood: Likelihood) -> None:
    width = 2 if isinstance(likelihood, Gaussian) else 4
    output = torch.zeros(4, width)
    for y in (torch.zeros(4), torch.zeros(4, 3), torch.zeros(2)):
        with pytest.raises(ValueError, match=r"the model predicts \(4, 2\): they must agree"):
            likelihood.nll(output, y)
    message = r"`y` has \(3,\) values per example, the model predicts \(2,\): they must agree"
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(torch.zeros(4, 3), output.shape)


@over("likelihood", LIKELIHOODS)
def test_targets_that_are_not_finite_real_numbers_are_refused(likelihood: Likelihood) -> None:
    bad = torch.tensor([1.0, math.nan, math.inf])
    with pytest.raises(ValueError, match=r"`y` holds 2 NaN or infinite values: drop or impute"):
        likelihood.check_targets(bad)
    with pytest.raises(ValueError, match=r"`y` must be real, got torch\.complex64"):
        likelihood.check_targets(torch.zeros(3, dtype=torch.complex64))


def test_heteroscedastic_outputs_come_in_pairs() -> None:
    for shape in ((4, 3), (4,)):
        with pytest.raises(ValueError, match=r"needs an even number of model outputs .*give the last layer 2"):
            HeteroscedasticGaussian().check_targets(torch.zeros(4, 1), torch.Size(shape))


def test_noise_that_makes_no_sense_is_refused() -> None:
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"`noise` must be positive, got"):
            Gaussian(value)
        with pytest.raises(ValueError, match=r"`floor` must be positive, got"):
            HeteroscedasticGaussian(value)


@over("likelihood", LIKELIHOODS)
def test_predictive_of_several_samples_is_a_mixture(likelihood: Likelihood) -> None:
    means, variances = normal(7, 4, 2), normal(7, 4, 2, seed=1).square() + 0.1
    y = normal(4, 2, seed=2)
    weights = distributions.Categorical(logits=torch.zeros(4, 7, dtype=torch.float64))
    parts = distributions.Normal(means.transpose(0, 1), variances.transpose(0, 1).sqrt())
    mixture = distributions.MixtureSameFamily(weights, distributions.Independent(parts, 1))
    torch.testing.assert_close(likelihood.log_density(means, variances, y), mixture.log_prob(y))
    for level in (0.025, 0.5, 0.9):
        quantile = likelihood.quantile(means, variances, level)
        reached = distributions.Normal(means, variances.sqrt()).cdf(quantile).mean(0)
        torch.testing.assert_close(reached, torch.full((4, 2), level, dtype=torch.float64), rtol=0, atol=1e-9)


def test_a_network_remembers_its_likelihood() -> None:
    model, likelihood = torch.nn.Sequential(torch.nn.Linear(2, 1)), Gaussian(0.3)
    with pytest.raises(ValueError, match=r"`likelihood` is not known: `bl.fit` remembers it"):
        likelihood_of(model)
    remember_likelihood_(model, likelihood)
    assert likelihood_of(model) is likelihood
    other = HeteroscedasticGaussian()
    assert likelihood_of(model, other) is other
    assert len(model) == 1
    assert not any("noise" in name for name in model.state_dict())


@pytest.mark.parametrize(("outputs", "width"), [(3, 1), (1, 3)])
def test_a_noise_for_other_outputs_than_the_network_has_is_refused(outputs: int, width: int) -> None:
    """Broadcasting would train on a loss that is summed over outputs that do not exist."""
    with pytest.raises(
        ValueError, match=f"noise for {outputs} outputs, but the model has {width}: pass outputs={width}"
    ):
        Gaussian(outputs=outputs).check_targets(torch.zeros(4, width), torch.Size([4, width]))
