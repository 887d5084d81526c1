"""How the comparison trains and judges each method, on made-up data."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import Gaussian, likelihood_of, remember_likelihood_
from bayeslim.predictive import Snapshots
from bayeslim_papers.comparison import methods
from bayeslim_papers.comparison.data import Case, likelihood_for, parts
from bayeslim_papers.comparison.judge import judged, validation_nll
from bayeslim_papers.comparison.methods import METHODS, Outcome
from bayeslim_papers.comparison.training import Job, by_sampler, network, train_side_by_side
from papers.comparison_cases import CONFIG, TRIED, classes, regression


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {*TRIED, "laplace"}))
def test_the_other_methods_run(name: str) -> None:
    method, config = METHODS[name], dataclasses.replace(CONFIG, epochs=2)
    jobs = [Job(regression(seed).train, method.grid[0], seed) for seed in (0, 1)]
    for outcome, seed in zip(method.train(config, jobs), (0, 1), strict=True):
        assert outcome is not None
        scores = judged(config, method, outcome, regression(seed))
        assert scores is not None and all(math.isfinite(value) for value in scores.values())
    method.step(config, jobs[0])()


@pytest.mark.parametrize("name", ["map", "mc-dropout", "ensemble", "ard", "vdp", "sghmc", "dfp"])
def test_classes_and_outliers(name: str) -> None:
    method, cases = METHODS[name], classes((0, 1))
    outcomes = method.train(CONFIG, [Job(case.train, method.grid[-1], case.seed) for case in cases])
    for case, outcome in zip(cases, outcomes, strict=True):
        assert outcome is not None
        scores = judged(CONFIG, method, outcome, case)
        assert scores is not None
        assert scores["accuracy"] > 0.9 and scores["single"] > 0.9 and scores["ood_auroc"] > 0.9, scores
        assert {"nll", "ece", "brier"} <= set(scores)


def test_networks_keep_their_own_data_weight_and_seed() -> None:
    jobs = [Job(regression(seed).train, 1.0, seed) for seed in (0, 1)]

    def trained(own: list[Job]) -> list[nn.Sequential]:
        models = [network(CONFIG, job, estimator=bl.mean_only) for job in own]
        train_side_by_side(CONFIG, models, own, [job.value for job in own])
        return models

    together, alone = trained(jobs), [*trained(jobs[:1]), *trained(jobs[1:])]
    for left, right in zip(together, alone, strict=True):
        for name, value in left.state_dict().items():
            torch.testing.assert_close(value, right.state_dict()[name], rtol=1e-3, atol=1e-4)
        noises = [likelihood_of(model).state_dict()["log_noise"] for model in (left, right)]
        torch.testing.assert_close(*noises, rtol=1e-3, atol=1e-4)


def test_map_is_ridge_regression() -> None:
    """A linear network: `w = (X'X + value noise^2 I)^-1 X'y`, columns centred, `noise^2` the mean squared residual."""
    x, y = regression(0).train
    config = dataclasses.replace(CONFIG, hidden=(), epochs=250, batch_size=200, lr=0.1)
    values = (1.0, 100.0)
    outcomes = METHODS["map"].train(config, [Job((x, y), value, 0) for value in values])
    for value, outcome in zip(values, outcomes, strict=True):
        assert outcome is not None and isinstance(outcome.whole, nn.Sequential)
        layer = outcome.whole[0]
        assert isinstance(layer, nn.Linear)
        likelihood = likelihood_of(outcome.whole)
        assert isinstance(likelihood, Gaussian)
        noise = likelihood.log_noise.mul(2).exp()
        assert noise.item() == pytest.approx((y - layer(x)).square().mean().item(), rel=0.01)
        inputs, targets = x - x.mean(0), y - y.mean(0)
        exact = torch.linalg.solve(inputs.T @ inputs + value * noise * torch.eye(3), inputs.T @ targets)
        torch.testing.assert_close(layer.weight, exact.T, rtol=0.01, atol=2e-3)


def test_ensemble_has_the_mean_noise_variance() -> None:
    (outcome,) = METHODS["ensemble"].train(dataclasses.replace(CONFIG, epochs=1), [Job(regression(0).train, 1.0, 0)])
    assert outcome is not None and isinstance(outcome.whole, Snapshots) and len(outcome.whole) == 2
    assert not torch.equal(outcome.whole[0]["0.weight"], outcome.whole[1]["0.weight"])
    first, second = nn.Linear(3, 1), nn.Linear(3, 1)
    remember_likelihood_(first, Gaussian(1.0))
    remember_likelihood_(second, Gaussian(3.0))
    joined = likelihood_of(methods._joined([first, second]).model)
    assert isinstance(joined, Gaussian)
    assert joined.log_noise.exp().item() == pytest.approx(math.sqrt(5.0))


def constant(value: float, noise: float) -> nn.Sequential:
    """A network that predicts N(value, noise^2) everywhere."""
    model = nn.Sequential(nn.Linear(3, 1))
    layer = model[0]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.fill_(value)
    remember_likelihood_(model, Gaussian(noise))
    return model


def test_scores_are_in_the_original_unit() -> None:
    x, y = torch.zeros(2, 3), torch.tensor([[1.0], [-1.0]])
    model = constant(0.0, 0.5)
    scores = judged(CONFIG, METHODS["map"], Outcome(model, model), Case(0, (x, y), (x, y), unit=3.0))
    assert scores is not None
    assert scores["rmse"] == scores["single"] == pytest.approx(3.0)
    density = torch.distributions.Normal(0.0, 1.5).log_prob(3 * y)
    assert scores["nll"] == pytest.approx(-density.mean().item(), rel=1e-5)
    assert scores["coverage95"] == 0


def test_what_diverged_is_said() -> None:
    model = constant(math.inf, 1.0)
    case = regression(0)
    outcome = Outcome(model, model)
    assert judged(CONFIG, METHODS["map"], outcome, case) is None
    assert validation_nll(CONFIG, METHODS["map"], outcome, case.test) == math.inf
    assert validation_nll(CONFIG, METHODS["map"], None, case.test) == math.inf
    wild = dataclasses.replace(CONFIG, clip_norm=1e30)
    assert by_sampler(wild, Job(case.train, 1e6, 0), "sghmc") is None


def test_parts_are_a_partition() -> None:
    case = regression(3)
    (x, _), (held, _) = parts(case)
    assert (len(x), len(held)) == (160, 40)
    rows = {tuple(row) for row in torch.cat([x, held]).tolist()}
    assert rows == {tuple(row) for row in case.train[0].tolist()}
    assert torch.equal(parts(case)[1][0], held)
    assert not torch.equal(parts(case._replace(seed=4))[1][0], held)


def test_likelihoods() -> None:
    assert isinstance(likelihood_for(regression(0).train), Gaussian)
    assert isinstance(likelihood_for(classes((0,))[0].train), bl.Categorical)


@pytest.mark.parametrize("name", ["ensemble", "cvadam", "dfp"])
def test_timing_predicts_by_as_many_networks(name: str) -> None:
    method, job = METHODS[name], Job(regression(0).train, METHODS[name].grid[0], 0)
    config = dataclasses.replace(CONFIG, epochs=4)
    (outcome,) = method.train(config, [job])
    untrained = method.untrained(config, job)
    assert outcome is not None and isinstance(outcome.whole, Snapshots) and isinstance(untrained, Snapshots)
    assert len(outcome.whole) == len(untrained)
