"""Classes and yes/no targets against torch.distributions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, distributions

from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods import Bernoulli, Categorical
from contracts.members import over
from contracts.statistics import ERRORS, assert_mean, draws


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
        many = output.loc + output.scale * torch.randn(200_000, 6, 3, dtype=torch.float64)
        flat = likelihood.nll(many.flatten(0, 1), y.repeat(200_000, *[1] * (y.ndim - 1)))
        expected = flat.view(200_000, 6)
        error = (expected.var(0) / 200_000).sqrt()
        difference = samples.mean(0) - expected.mean(0)
        assert bool((difference.abs() < 5 * (error + samples.std(0) / 20_000**0.5)).all())
        plain = likelihood.expected_nll(output.loc, y)
        torch.testing.assert_close(plain, likelihood.nll(output.loc, y), rtol=0, atol=0)


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
    for outputs in ((2, 1), (2,)):
        with pytest.raises(ValueError, match=r"\(batch, classes >= 2\), got .*for one logit use Bernoulli"):
            likelihood.check_targets(torch.tensor([0, 1]), torch.Size(outputs))
    for outputs in ((2, 3, 4), (2, 3, 4, 4)):  # tokens, pixels
        with pytest.raises(ValueError, match=r"got \(2, 3, 4.*every example has one label; .* write a subclass"):
            likelihood.check_targets(torch.zeros(2, *outputs[2:], dtype=torch.int64), torch.Size(outputs))


def test_decisions() -> None:
    """The most probable class; of yes and no the more probable one, flat for one output."""
    p = torch.tensor([[0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    assert Categorical().classes(p).tolist() == [1, 0]
    assert Bernoulli().classes(p).tolist() == [[0, 1, 0], [1, 0, 0]]
    for one in (p[:, :1], p[:, 0]):
        found = Bernoulli().classes(one)
        assert found.tolist() == [0, 1] and found.dtype == torch.int64
    assert Bernoulli().classes(torch.full((2, 1, 3), 0.5)).tolist() == [[[0, 0, 0]], [[0, 0, 0]]]


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
    torch.testing.assert_close(Bernoulli().log_density(rates, rates * (1 - rates), targets), joint)


def test_a_sure_no_costs_as_much_as_a_sure_yes() -> None:
    output = torch.tensor([[10.0], [17.0], [40.0], [80.0]])  # from 17 on `sigmoid` is 1 in float32
    for sure, y in ((output, torch.zeros(4, 1)), (-output, torch.ones(4, 1))):
        mean, variance, entropy = Bernoulli().conditional(sure[None])
        torch.testing.assert_close(-Bernoulli().log_density(mean, variance, y), Bernoulli().nll(sure, y))
        odds = output.double().neg().exp()
        exact = odds.log1p() + output * odds / (1 + odds)
        torch.testing.assert_close(entropy[0].double(), exact, rtol=1e-5, atol=0)


def test_sampling_the_targets_gives_the_stated_mean() -> None:
    output = logits(3)
    torch.manual_seed(5)
    targets = distributions.OneHotCategorical(logits=output).sample(torch.Size((20_000,)))
    assert_mean(targets, Categorical().conditional(output).mean)


LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def sampled_nll(mean: Tensor, variance: Tensor, count: int = 200_000) -> tuple[Tensor, Tensor]:
    """Cross-entropy of Gaussian logits averaged over draws in pairs `m +- e`, and its standard error."""
    torch.manual_seed(6)
    total = []
    for _ in range(4):
        noise = variance.sqrt() * torch.randn(count // 8, *mean.shape, dtype=torch.float64)
        pairs = [
            F.cross_entropy((mean + e).flatten(0, 1), LABELS.repeat(len(e)), reduction="none") for e in (noise, -noise)
        ]
        total.append((0.5 * (pairs[0] + pairs[1])).view(-1, len(mean)))
    drawn = torch.cat(total)
    return drawn.mean(0), drawn.std(0) / len(drawn) ** 0.5


def test_the_second_order_expectation_is_right_to_fourth_order() -> None:
    """The error against the true expectation falls with the square of the variance."""
    mean, shape, errors = logits(3), torch.rand(6, 3, generator=torch.Generator().manual_seed(7)).double() + 0.5, []
    for scale in (0.1, 0.4):
        variance = scale**2 * shape
        exact, error = sampled_nll(mean, variance)
        found = Categorical("second-order").expected_nll(Gaussian(mean, variance), LABELS)
        difference = (found - exact).abs()
        assert bool((difference <= 0.25 * variance.sum(-1).square() + ERRORS * error).all())
        first = (Categorical("mean").expected_nll(Gaussian(mean, variance), LABELS) - exact).abs()
        errors.append((difference.sum() / first.sum()).item())
    assert errors[0] < 0.05 and errors[1] < 0.2


def test_the_probit_expectation_by_hand() -> None:
    mean, variance = logits(3), torch.rand(6, 3, generator=torch.Generator().manual_seed(7)).double()
    found = Categorical("probit").expected_nll(Gaussian(mean, variance), LABELS)
    scaled = mean / (1 + math.pi * variance / 8) ** 0.5
    expected = [-(row[label] - row.exp().sum().log()) for row, label in zip(scaled, LABELS, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected))


def test_the_gaussian_expectation_is_the_papers_equation() -> None:
    """`0.5 (sum_k ln s_k + sum_k (y_k - p_k)^2 / s_k + l ln 2 pi)`, the softmax's `s` by its Jacobian."""
    mean, variance = logits(3), torch.rand(6, 3, generator=torch.Generator().manual_seed(7)).double()
    found = Categorical("gaussian").expected_nll(Gaussian(mean, variance), LABELS)
    floored = 0
    for row, label, v, value in zip(mean, LABELS, variance, found, strict=True):
        jacobian: Any = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row)
        s = jacobian.square() @ v
        floored += int((s < 1e-3).sum())
        s = s.clamp_min(1e-3)
        target = torch.zeros(3).double()
        target[label] = 1
        normal = distributions.Normal(row.softmax(-1), s.sqrt())
        torch.testing.assert_close(value, -normal.log_prob(target).sum())
    assert 0 < floored < 18


@over("expectation", ["sample", "mean", "probit", "second-order"])
def test_without_variance_every_expectation_is_the_cross_entropy(expectation: Any) -> None:
    output = Gaussian(logits(3), torch.zeros(6, 3).double())
    expected = F.cross_entropy(output.loc, LABELS, reduction="none")
    torch.testing.assert_close(Categorical(expectation).expected_nll(output, LABELS), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(Categorical(expectation).expected_nll(output.loc, LABELS), expected)


def test_the_gaussian_expectation_is_no_likelihood_of_a_label() -> None:
    output = Gaussian(logits(3), torch.zeros(6, 3).double())
    found = Categorical("gaussian").expected_nll(output, LABELS)
    assert not torch.allclose(found, F.cross_entropy(output.loc, LABELS, reduction="none"), rtol=0.1)
    plain = Categorical("gaussian").expected_nll(output.loc, LABELS)
    torch.testing.assert_close(plain, F.cross_entropy(output.loc, LABELS, reduction="none"))


def test_the_expectation_is_kept_and_checked() -> None:
    assert Categorical().config() == {}
    for expectation in ("mean", "probit", "second-order", "gaussian"):
        config = Categorical(expectation).config()
        assert config == {"expectation": expectation}
        assert Categorical(**config).expectation == expectation
    unknown: Any = "third-order"
    with pytest.raises(ValueError, match=r"`expectation` must be one of 'sample', 'mean', .*, got 'third-order'"):
        Categorical(unknown)


@over("std", [0.0, 0.3, 1.0, 3.0])
def test_the_expected_nll_of_yes_and_no_equals_dense_quadrature(std: float) -> None:
    mean, y = logits(3), (logits(3, 1) > 0).double()
    z = torch.linspace(-12, 12, 20_001, dtype=torch.float64)
    weight = torch.exp(-0.5 * z.square()) / torch.exp(-0.5 * z.square()).sum()
    losses = F.binary_cross_entropy_with_logits(
        mean[..., None] + std * z, y[..., None].expand(6, 3, len(z)), reduction="none"
    )
    found = Bernoulli().expected_nll(Gaussian(mean, torch.full_like(mean, std**2)), y)
    torch.testing.assert_close(found, (losses @ weight).sum(1), rtol=1e-4, atol=1e-6)
    assert torch.equal(Bernoulli().expected_nll(mean, y), Bernoulli().nll(mean, y))
