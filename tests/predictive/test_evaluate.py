"""Scores against their definitions, computed with numpy and scipy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn import metrics as sklearn_metrics
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood

COUNT = 37


def network(outputs: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return bl.mlp([3, 8, outputs], method="graves", init_log_variance=-1.5)


def inputs() -> Tensor:
    return torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(1))


def draws(model: nn.Module, likelihood: Likelihood, samples: int) -> bl.Prediction:
    """What `evaluate` saw, batch by batch: the seed grows by one with each."""
    parts = [
        bl.predict(model, x, samples=samples, likelihood=likelihood, keep_samples=True, seed=5 + index)
        for index, x in enumerate(inputs().split(16))
    ]
    joined: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts], dim)
        for name, dim in (("mean", 0), ("epistemic", 0), ("aleatoric", 0), ("entropy", 0))
    }
    joined |= {name: torch.cat([getattr(part, name) for part in parts], 1) for name in ("samples", "sample_variances")}
    return bl.Prediction(**joined, mutual_information=joined["entropy"], likelihood=likelihood)


def run(model: nn.Module, y: Any, likelihood: Likelihood, samples: int = 30) -> dict[str, float]:
    return bl.evaluate(model, (inputs(), y), samples=samples, likelihood=likelihood, batch_size=16, seed=5)


def test_classes() -> None:
    model, y = network(), torch.arange(COUNT) % 4
    scores = run(model, y, bl.Categorical())
    p = draws(model, bl.Categorical(), 30).mean.double().numpy()
    p /= p.sum(1, keepdims=True)
    assert scores["nll"] == pytest.approx(sklearn_metrics.log_loss(y, p), rel=1e-5)
    assert scores["accuracy"] == sklearn_metrics.accuracy_score(y, p.argmax(1))
    one_hot = np.eye(4)[y.numpy()]
    assert scores["brier"] == pytest.approx(((p - one_hot) ** 2).sum(1).mean(), rel=1e-5)
    confidence, correct = p.max(1), p.argmax(1) == y.numpy()
    bins = np.minimum((confidence * 15).astype(int), 14)
    ece = sum(
        (bins == b).mean() * abs(confidence[bins == b].mean() - correct[bins == b].mean())
        for b in range(15)
        if (bins == b).any()
    )
    assert scores["ece"] == pytest.approx(ece, abs=1e-6)
    assert set(scores) == {"nll", "accuracy", "brier", "ece"}


@pytest.mark.parametrize(("likelihood", "outputs"), [(Gaussian(0.4), 2), (HeteroscedasticGaussian(), 4)])
def test_regression(likelihood: Likelihood, outputs: int) -> None:
    """The density of the mixture of Gaussians, jointly over both targets."""
    model = network(outputs)
    y = torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(2))
    scores = run(model, y, likelihood)
    seen = draws(model, likelihood, 30)
    assert seen.samples is not None and seen.sample_variances is not None
    means, stds = seen.samples.double().numpy(), seen.sample_variances.double().sqrt().numpy()
    log_density = stats.norm.logpdf(y.numpy(), means, stds).sum(-1)
    expected = np.asarray(special.logsumexp(log_density, axis=0)) - math.log(30)
    assert scores["nll"] == pytest.approx(-expected.mean(), rel=1e-5)
    error = (seen.mean - y).double().numpy()
    assert scores["rmse"] == pytest.approx(math.sqrt((error**2).mean()), rel=1e-5)
    inside = np.abs(error) <= stats.norm.ppf(0.975) * seen.std.numpy()
    assert scores["coverage95"] == pytest.approx(inside.mean())
    assert set(scores) == {"nll", "rmse", "coverage95"}


def test_yes_or_no() -> None:
    """All outputs of an example are one event: their joint probability is averaged over samples."""
    model = network(2)
    y = (torch.rand(COUNT, 2, generator=torch.Generator().manual_seed(2)) > 0.5).float()
    scores = run(model, y, bl.Bernoulli())
    seen = draws(model, bl.Bernoulli(), 30)
    assert seen.samples is not None
    p = seen.samples.double().numpy()
    joint = np.where(y.numpy() > 0, p, 1 - p).prod(-1).mean(0)
    assert scores["nll"] == pytest.approx(-np.log(joint).mean(), rel=1e-5)
    assert scores["accuracy"] == pytest.approx(((seen.mean > 0.5) == (y > 0.5)).double().mean().item())


def test_without_samples_the_posterior_mean_is_judged() -> None:
    model, y = network(), torch.arange(COUNT) % 4
    with bl.using(model, bl.mean_only):
        expected = nn.functional.cross_entropy(model(inputs()), y).item()
    for batch_size in (5, 16, 1000):
        scores = bl.evaluate(model, (inputs(), y), samples=0, likelihood=bl.Categorical(), batch_size=batch_size)
        assert scores["nll"] == pytest.approx(expected, rel=1e-5)


def test_averaging_over_samples_is_better_than_the_average_sample() -> None:
    """Jensen: the log of the mean density is at least the mean log density."""
    model, y = network(), torch.arange(COUNT) % 4
    mixture = run(model, y, bl.Categorical(), samples=200)["nll"]
    single = [
        bl.evaluate(model, (inputs(), y), samples=1, likelihood=bl.Categorical(), seed=s)["nll"] for s in range(100)
    ]
    assert mixture < np.mean(single) - 5 * np.std(single) / 10


def test_a_seed_of_numpy_is_an_integer() -> None:
    """It grows with the batches, beyond what eight bits hold."""
    model, data, seeds = network(), (inputs(), torch.arange(COUNT) % 4), list[Any]([255, np.uint8(255)])
    plain, other = (
        bl.evaluate(model, data, samples=3, likelihood=bl.Categorical(), batch_size=16, seed=seed) for seed in seeds
    )
    assert plain == other


def test_every_form_of_data_is_the_same() -> None:
    model, y = network(), torch.arange(COUNT) % 4
    dataset = TensorDataset(inputs(), y)
    forms: list[Any] = [
        [inputs(), y],
        (inputs().numpy(), y.numpy()),
        (inputs().tolist(), y.tolist()),
        dataset,
        DataLoader(dataset, 16),
    ]
    for data in forms:
        scores = bl.evaluate(model, data, samples=30, likelihood=bl.Categorical(), batch_size=16, seed=5)
        assert scores == run(model, y, bl.Categorical())


def test_a_column_of_targets_may_be_flat() -> None:
    model, y = network(1), torch.randn(COUNT)
    assert run(model, y, Gaussian()) == run(model, y[:, None], Gaussian())
    assert run(model, y, Gaussian()) == pytest.approx(run(model, y.double(), Gaussian()), rel=1e-6)


def test_the_global_state_is_left_alone_and_modes_come_back() -> None:
    model, y = network(), torch.arange(COUNT) % 4
    before = torch.get_rng_state()
    run(model, y, bl.Categorical())
    assert torch.equal(torch.get_rng_state(), before) and model.training


def test_the_remembered_likelihood_is_used() -> None:
    model, y = network(), torch.arange(COUNT) % 4
    with pytest.raises(ValueError, match="`likelihood` is not known"):
        bl.evaluate(model, (inputs(), y))
    bl.fit(model, (inputs(), y), likelihood=bl.Categorical(), epochs=1, seed=0)
    assert "accuracy" in bl.evaluate(model, (inputs(), y))


@pytest.mark.parametrize(
    ("y", "likelihood", "message"),
    [
        (torch.full((COUNT,), 4), bl.Categorical(), r"`y` holds the label 4, but the model has 4 outputs.*\[0, 3\]"),
        (torch.full((COUNT,), -1), bl.Categorical(), "`y` holds the negative label -1"),
        (torch.zeros(COUNT), bl.Categorical(), "`y` must hold integer class labels, got torch.float32"),
        (torch.zeros(COUNT - 1, dtype=torch.long), bl.Categorical(), "37 inputs and 36 targets: they must agree"),
        (torch.zeros(COUNT), Gaussian(), r"`y` has shape \(37, 1\), the predictions \(37, 4\): they must agree"),
        (torch.zeros(COUNT, 4), HeteroscedasticGaussian(), r"shape \(37, 4\), the predictions \(37, 2\)"),
        (torch.zeros(COUNT, 1), bl.Bernoulli(), r"shape \(37, 1\), the predictions \(37, 4\)"),
        (torch.full((COUNT, 4), 2.0), bl.Bernoulli(), r"`y` must lie in \[0, 1\]"),
        (torch.full((COUNT, 4), torch.nan), Gaussian(), "`y` holds NaN"),
    ],
)
def test_targets_that_do_not_fit_are_refused(y: Tensor, likelihood: Likelihood, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bl.evaluate(network(), (inputs(), y), likelihood=likelihood)


@pytest.mark.parametrize("data", [None, torch.zeros(3, 3), (torch.zeros(3, 3),), {"x": 1, "y": 2}])
def test_data_of_another_kind_are_refused(data: Any) -> None:
    with pytest.raises(TypeError, match=r"`data` must be \(x, y\), a Dataset or a DataLoader"):
        bl.evaluate(network(), data, likelihood=bl.Categorical())


def test_other_errors() -> None:
    y = torch.arange(COUNT) % 4
    with pytest.raises(ValueError, match="`samples` must not be negative, got -1: 0 uses the posterior mean"):
        bl.evaluate(network(), (inputs(), y), samples=-1, likelihood=bl.Categorical())
    empty = DataLoader(TensorDataset(inputs(), y), 100, drop_last=True)
    with pytest.raises(ValueError, match="`data` gave no batches: the loader is empty"):
        bl.evaluate(network(), empty, likelihood=bl.Categorical())
    with pytest.raises(ValueError, match="does not accept inputs"):
        bl.evaluate(network(), (inputs()[:, :2], y), likelihood=bl.Categorical())


def test_batches_that_are_not_pairs_are_refused() -> None:
    data = TensorDataset(torch.randn(4, 3), torch.zeros(4), torch.arange(4))
    with pytest.raises(ValueError, match=r"`data` must yield \(x, y\) pairs, got a list of 3"):
        bl.evaluate(bl.mlp([3, 1]), DataLoader(data, 2), likelihood=Gaussian())
