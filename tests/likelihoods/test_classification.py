"""Classes and yes/no targets against torch.distributions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, distributions

from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods import Bernoulli, Categorical
from contracts.statistics import assert_mean, draws


def logits(outputs: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(6, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_categorical_nll_and_moments() -> None:
    output, y = logits(4), torch.tensor([0, 3, 1, 2, 2, 0])
    reference = distributions.Categorical(logits=output)
    one_hot = distributions.OneHotCategorical(logits=output)
    torch.testing.assert_close(Categorical().nll(output, y), -reference.log_prob(y))
    mean, variance, entropy = Categorical().conditional(output)
    torch.testing.assert_close(mean, one_hot.mean)
    torch.testing.assert_close(variance, one_hot.variance)
    torch.testing.assert_close(entropy, reference.entropy())
    torch.testing.assert_close(Categorical().predictive_entropy(mean, variance), reference.entropy())


def test_bernoulli_nll_and_moments() -> None:
    output = logits(3)
    y = (logits(3, 1) > 0).double()
    reference = distributions.Bernoulli(logits=output)
    torch.testing.assert_close(Bernoulli().nll(output, y), -reference.log_prob(y).sum(1))
    mean, variance, entropy = Bernoulli().conditional(output)
    torch.testing.assert_close(mean, reference.mean)
    torch.testing.assert_close(variance, reference.variance)
    torch.testing.assert_close(entropy, reference.entropy())
    torch.testing.assert_close(Bernoulli().predictive_entropy(mean, variance), reference.entropy())


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli()], ids=["categorical", "bernoulli"])
def test_extreme_logits_stay_finite(likelihood: Categorical | Bernoulli) -> None:
    output = torch.tensor([[500.0, -500.0], [0.0, 1e4]])
    conditional = likelihood.conditional(output)
    assert all(bool(value.isfinite().all()) for value in conditional)
    assert bool((conditional.entropy >= 0).all())
    sure = torch.tensor([[1.0, 0.0]])
    assert bool((likelihood.predictive_entropy(sure, sure) == 0).all())


def test_one_draw_of_a_gaussian_output_is_unbiased() -> None:
    output = Gaussian(logits(3), torch.rand(6, 3, generator=torch.Generator().manual_seed(2)).double())
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    for likelihood, y in ((Categorical(), labels), (Bernoulli(), (logits(3, 1) > 0).double())):
        samples = draws(lambda: likelihood.expected_nll(output, y), 20_000, seed=3)  # noqa: B023
        torch.manual_seed(4)
        many = output.mean + output.std * torch.randn(200_000, 6, 3, dtype=torch.float64)
        flat = likelihood.nll(many.flatten(0, 1), y.repeat(200_000, *[1] * (y.ndim - 1)))
        expected = flat.view(200_000, 6)
        error = (expected.var(0) / 200_000).sqrt()
        difference = samples.mean(0) - expected.mean(0)
        assert bool((difference.abs() < 5 * (error + samples.std(0) / 20_000**0.5)).all())
        plain = likelihood.expected_nll(output.mean, y)
        torch.testing.assert_close(plain, likelihood.nll(output.mean, y), rtol=0, atol=0)


def test_categorical_targets() -> None:
    likelihood, shape = Categorical(), torch.Size((2, 3))
    checked = likelihood.check_targets(torch.tensor([0, 2], dtype=torch.int16), shape)
    assert checked.dtype == torch.int64
    assert likelihood.check_targets(torch.empty(0, dtype=torch.int64), shape).shape == (0,)
    for bad in (torch.zeros(2), torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.complex64)):
        with pytest.raises(ValueError, match=r"`y` must hold integer class labels, got torch\..*y\.long\(\)"):
            likelihood.check_targets(bad, shape)
    with pytest.raises(ValueError, match=r"`y` must have shape \(N,\), got \(2, 1\): one label per example"):
        likelihood.check_targets(torch.zeros(2, 1, dtype=torch.int64), shape)
    with pytest.raises(ValueError, match=r"`y` holds the negative label -1: labels start at 0"):
        likelihood.check_targets(torch.tensor([0, -1]), shape)
    with pytest.raises(ValueError, match=r"holds the label 3, but the model has 3 outputs.*\[0, 2\]"):
        likelihood.check_targets(torch.tensor([0, 3]), shape)
    for outputs in ((2, 1), (2,), (2, 3, 4)):
        with pytest.raises(ValueError, match=r"\(batch, classes >= 2\), got .*for one logit use Bernoulli"):
            likelihood.check_targets(torch.tensor([0, 1]), torch.Size(outputs))


def test_bernoulli_targets() -> None:
    likelihood = Bernoulli()
    for y in (torch.tensor([0, 1]), torch.tensor([False, True]), torch.tensor([0.0, 1.0])):
        checked = likelihood.check_targets(y, torch.Size((2, 1)))
        assert torch.equal(checked, torch.tensor([[0.0], [1.0]]))
    assert likelihood.check_targets(torch.tensor([[0.2, 0.9]]), torch.Size((1, 2))).shape == (1, 2)
    for bad in (torch.tensor([0.0, 1.5]), torch.tensor([-0.1, 1.0])):
        with pytest.raises(ValueError, match=r"`y` must lie in \[0, 1\] for Bernoulli, got \["):
            likelihood.check_targets(bad, torch.Size((2, 1)))


def test_bernoulli_targets_of_one_axis_are_columns() -> None:
    output, y = logits(1), torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    assert torch.equal(Bernoulli().nll(output, y), Bernoulli().nll(output, y[:, None]))
    with pytest.raises(ValueError, match=r"`y` has shape \(6, 1\), the model predicts \(6, 3\)"):
        Bernoulli().nll(logits(3), y)


def test_log_density_is_that_of_the_averaged_prediction() -> None:
    means = torch.stack([logits(3, seed).softmax(1) for seed in range(5)])
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    mixture = distributions.Categorical(probs=means.mean(0))
    torch.testing.assert_close(Categorical().log_density(means, means, y), mixture.log_prob(y))
    rates = torch.stack([logits(3, seed).sigmoid() for seed in range(5)])
    targets = (logits(3, 9) > 0).double()
    joint = distributions.Bernoulli(probs=rates).log_prob(targets).sum(2).exp().mean(0).log()
    torch.testing.assert_close(Bernoulli().log_density(rates, rates, targets), joint)


def test_sampling_the_targets_gives_the_stated_mean() -> None:
    output = logits(3)
    torch.manual_seed(5)
    targets = distributions.OneHotCategorical(logits=output).sample(torch.Size((20_000,)))
    assert_mean(targets, Categorical().conditional(output).mean)
