"""Settings, objectives and numbers of the dissertation's experiments are those of the dissertation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim_papers.dissertation import networks, regression, reviews
from bayeslim_papers.dissertation.command import Dissertation
from bayeslim_papers.dissertation.networks import Data, Networks
from bayeslim_papers.dissertation.regression import GAUSSIAN_CONSTANT, Curve
from bayeslim_papers.dissertation.results import table
from bayeslim_papers.dissertation.reviews import Reviews, ReviewTokens
from papers.stand_in import StandIn, Stopped, values

ROOT = Path(__file__).parents[2]


def test_two_moons_and_the_reviews_have_settings_of_their_own() -> None:
    """Half as many epochs of warm-up, batches of 10 at 1e-2 where the dissertation has 1 at 1e-3, as the page says."""
    parts: Any = Dissertation().parts
    moons = parts["moons"]
    assert moons.sizes == (2, 300, 100, 2) and (moons.batch_size, moons.lr) == (10, 1e-2)
    assert (moons.pretrain_epochs, moons.warmup_epochs, moons.anneal_epochs) == (50, 50, 150)
    assert parts["imdb"].sizes == (50_000, 5000, 1000)


@pytest.mark.parametrize("pretraining", ["frequentist", "bayesian"])
@pytest.mark.parametrize("objective", ["elbo", "dissertation", "dissertation-3"])
def test_what_the_networks_minimise(objective: str, pretraining: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pretraining == "frequentist"
    spy = StandIn(until=2 if plain else 1)
    monkeypatch.setattr(networks, "fit_many", spy)
    part = torch.zeros(4, 784), torch.zeros(4, dtype=torch.long)
    with pytest.raises(Stopped):
        Networks().measured(f"{objective}/molchanov/{pretraining}", [0], Data(part, part))
    options = spy.calls[-1]
    warmup = 0 if plain else 100
    assert options["epochs"] == warmup + 100 and options["batch_size"] == 256 and options["lr"] == 1e-3
    assert options["kl_scaling"] == ("elbo" if objective == "elbo" else "dissertation")
    assert isinstance(options["likelihood"], bl.Categorical)
    weights = values(options["kl_schedule"], warmup + 100, (warmup - 1, warmup, warmup + 49, warmup + 99))
    assert weights[0 if warmup else 1 :] == pytest.approx([0.0, 0.01, 0.5, 1.0][0 if warmup else 1 :])
    if objective == "elbo":
        assert values(options["lr_schedule"], 100, (0, 50, 75)) == pytest.approx([1.0, 1.0, 0.5])
    else:
        assert options["lr_schedule"] is None
    if plain:
        assert spy.calls[0]["epochs"] == 100 and "kl_schedule" not in spy.calls[0]


@pytest.mark.parametrize("objective", ["elbo", "dissertation"])
def test_what_the_regression_minimises(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dissertation's loss is the squared error: a Gaussian of variance 1/2, but for its constant."""
    spy = StandIn()
    monkeypatch.setattr(regression, "fit_many", spy)
    with pytest.raises(Stopped):
        Curve().measured(f"{objective}/graves", [0], Curve().load(None, "cpu"))
    options, ((model,), (x, _)) = spy.calls[0], spy.arguments
    assert len(x) == 40 and options["epochs"] == 400 and options["lr"] == 0.1 and options["batch_size"] == 5
    assert options["kl_scaling"] == objective
    assert values(options["kl_schedule"], 400, (149, 274, 399)) == pytest.approx([0.0, 0.5, 1.0])
    assert values(options["lr_schedule"], 400, (0, 99, 100, 399)) == [1.0, 1.0, 0.1, 0.1]
    assert model[0].prior.config() == {"mean": 0.0, "std": 2.0}
    likelihood = options["likelihood"]
    assert isinstance(likelihood, Gaussian) and likelihood.learn_noise == (objective == "elbo")
    if objective == "dissertation":
        output, y = torch.tensor([[0.3], [2.0]]), torch.tensor([[1.0], [-1.0]])
        expected = (output - y).square()[:, 0] + GAUSSIAN_CONSTANT / 40
        torch.testing.assert_close(likelihood.nll(output, y), expected)


def test_the_tables_energy_is_that_of_the_dissertation() -> None:
    """`N MSE + lambda KL / N`, without the 0.5 ln(pi) that the record counts for each of 40 points."""
    assert pytest.approx(20 * math.log(math.pi)) == GAUSSIAN_CONSTANT
    rest = {"part": "regression", "mse": 0.1, "test_nll": 0.2, "coverage": 95, "width": 1, "mean_coverage": 50}
    runs = [
        rest | {"variant": f"{objective}/molchanov", "seed": seed, "energy": energy, "sparsity": [0.5]}
        for objective in ("elbo", "dissertation")
        for seed, energy in enumerate((40.0, 42.0))
    ]
    text = table({"config": {"parts": {"regression": {}}}, "runs": runs})
    assert "| elbo | molchanov | 0.1 ± 0 | 0.2 ± 0 | 95 ± 0 | 1 ± 0 | 50 ± 0 | 41 ± 1.4 | 50.0 |" in text
    assert f"| 50 ± 0 | {41 - GAUSSIAN_CONSTANT:.4g} ± 1.4 | 50.0 |" in text.splitlines()[-1]


def test_stored_energies_hold_the_constant() -> None:
    """A plain network's, less the constant, is 40 times its squared error in training: above 0, below that of tests."""
    stored = json.loads((ROOT / "results" / "dissertation_small.json").read_text())["runs"]
    plain = [run for run in stored if run["part"] == "regression" and run["variant"] == "dissertation/frequentist"]
    assert len(plain) == 10
    assert all(0 < run["energy"] - GAUSSIAN_CONSTANT < 40 * run["mse"] for run in plain)


@pytest.mark.parametrize("objective", ["elbo", "dissertation"])
def test_what_the_transformer_minimises(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = StandIn()
    monkeypatch.setattr(reviews, "fit_many", spy)
    part = torch.zeros(2, 120, dtype=torch.long), torch.zeros(2, dtype=torch.long)
    with pytest.raises(Stopped):
        Reviews().measured(f"{objective}/1000/feed-forward", [0], {1000: ReviewTokens(part, part, 5)})
    options = spy.calls[0]
    assert (options["epochs"], options["batch_size"], options["lr"]) == (30, 32, 0.01)
    assert options["kl_scaling"] == objective and isinstance(options["likelihood"], bl.Categorical)
    if objective == "elbo":
        assert values(options["kl_schedule"], 30, (0, 14, 29)) == pytest.approx([1 / 30, 0.5, 1.0])
        assert values(options["lr_schedule"], 30, (0, 15, 24)) == pytest.approx([1.0, 1.0, 0.4])
    else:
        assert options["kl_schedule"] is None and options["lr_schedule"] is None
