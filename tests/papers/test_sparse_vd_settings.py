"""Recipes of the Sparse VD experiment and what they train by are those of the papers and the official code."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.posteriors import MeanField
from bayeslim.priors import GammaARD
from bayeslim_papers.sparse_vd import training
from bayeslim_papers.sparse_vd.recipes import (
    MAX_SCALE,
    NETWORKS,
    RECIPES,
    Recipe,
    Tempered,
    bayesian_,
    fresh,
)
from bayeslim_papers.sparse_vd.training import train_lenets, train_vgg
from papers.stand_in import StandIn, Stopped, values


def test_gamma_is_that_of_the_paper() -> None:
    """Rate b = 1e-8, and standard deviations of at most exp(-4)."""
    model = bayesian_(nn.Sequential(nn.Linear(3, 2)), Recipe("gamma", shape=0.505))
    layer = model[0]  # pyright: ignore[reportIndexIssue]
    assert isinstance(layer, bl.layers.BayesLayer) and isinstance(layer.prior, Tempered)
    assert isinstance(layer.prior.prior, GammaARD) and layer.prior.prior.config() == {"a": 0.505, "b": 1e-8}
    assert isinstance(layer.weight, MeanField) and math.log(MAX_SCALE) == -4.0
    torch.testing.assert_close(layer.weight.variance().log(), torch.full((2, 3), -10.0))


@pytest.mark.parametrize("network", ["lenet-300-100", "lenet-5"])
def test_what_the_lenets_are_trained_by(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = StandIn()
    monkeypatch.setattr(training, "fit_many", spy)
    data = torch.zeros(4, 1, 28, 28), torch.zeros(4, dtype=torch.long)
    own = RECIPES[network]
    with pytest.raises(Stopped):
        train_lenets(network, [own["molchanov"], own["ard-4"]], [0, 1], data, 100)
    options = spy.calls[0]
    assert (options["epochs"], options["batch_size"], options["lr"]) == (200, 100, [1e-3, 1e-3])
    assert options["kl_weight"] == [1.0, 4] and isinstance(options["likelihood"], bl.Categorical)
    rates = values(options["lr_schedule"], 200, (0, 50, 100, 150))  # LeNet-5's falls from the beginning
    assert rates == pytest.approx([1.0, 1.0, 1.0, 0.5] if network == "lenet-300-100" else [1.0, 0.75, 0.5, 0.25])
    assert values(options["kl_schedule"][0], 200, (4, 5, 8, 20, 199)) == pytest.approx([0.0, 0.0, 0.2, 1.0, 1.0])
    ramp = 280 if network == "lenet-300-100" else 180
    assert values(options["kl_schedule"][1], 300, (0, ramp // 2, ramp)) == pytest.approx([0.0, 0.5, 1.0])


def test_what_vgg_is_trained_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense network with weight decay 1e-5 first, then the recipe."""
    spy = StandIn(until=2)
    monkeypatch.setattr(bl, "fit", spy)
    data = torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    with pytest.raises(Stopped):
        train_vgg(RECIPES["vgg"]["molchanov"], 0, data, 100, width=1 / 64)
    dense, sparse = spy.calls
    optimizer = dense["optimizer"]([nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam
    assert {key: optimizer.defaults[key] for key in ("lr", "weight_decay")} == {"lr": 1e-3, "weight_decay": 1e-5}
    assert (dense["epochs"], sparse["epochs"], sparse["lr"]) == (200, 200, 1e-5)
    for options in spy.calls:
        assert values(options["lr_schedule"], 200, (0, 100, 150)) == pytest.approx([1.0, 1.0, 0.5])
        assert options["batch_size"] == 100 and isinstance(options["likelihood"], bl.Categorical)
    assert values(sparse["kl_schedule"], 200, (0, 199)) == [1.0, 1.0]
    spy = StandIn()
    monkeypatch.setattr(bl, "fit", spy)
    with pytest.raises(Stopped):
        train_vgg(RECIPES["vgg"]["p2-ard"], 0, data, 100, width=1 / 64)
    assert values(spy.calls[0]["kl_schedule"], 200, (0, 10, 20, 199)) == pytest.approx([0.0, 0.025, 0.05, 0.05])


def test_the_pretrained_vgg_has_the_official_noise() -> None:
    plain = bl.models.vgg_like(width=1 / 64, dropout=False)
    model = bayesian_(plain, RECIPES["vgg"]["molchanov"])
    variances = [layer.weight.variance() for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert all(torch.allclose(one.log(), torch.tensor(-15.0)) for one in variances) and len(variances) == 15
    lenet = bayesian_(fresh(NETWORKS["lenet-300-100"](), "he"), RECIPES["lenet-300-100"]["p2-ard"])
    for layer in lenet.modules():
        if isinstance(layer, bl.layers.BayesLayer):
            torch.testing.assert_close(layer.weight.variance().log(), torch.full_like(layer.weight.mean(), -10.0))
