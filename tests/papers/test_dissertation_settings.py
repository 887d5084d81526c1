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
from bayeslim_papers.dissertation.command import PAPER, Config
from bayeslim_papers.dissertation.networks import Data, Networks
from bayeslim_papers.dissertation.regression import GAUSSIAN_CONSTANT, Curve
from bayeslim_papers.dissertation.reviews import Reviews, ReviewTokens
from bayeslim_papers.dissertation.table import table
from papers.spy import Spy, Stopped, values

ROOT = Path(__file__).parents[2]
PARTS: Any = Config().parts


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            "mnist",
            {
                "sizes": (784, 300, 100, 10),
                "pretrain_epochs": 100,
                "warmup_epochs": 100,
                "anneal_epochs": 100,  # not stated
                "batch_size": 256,
                "lr": 1e-3,
                "samples": 200,
                "repetitions": 10,
                "sweep": (50, 100, 150, 200),
            },
        ),
        (
            "moons",  # warm-up 100, batch 1 and 1e-3 there, as the page says
            {
                "sizes": (2, 300, 100, 2),
                "pretrain_epochs": 50,
                "warmup_epochs": 50,
                "anneal_epochs": 150,
                "batch_size": 10,
                "lr": 1e-2,
                "samples": 200,
            },
        ),
        (
            "regression",  # batch 1 there
            {
                "sizes": (1, 64, 1),
                "warmup_epochs": 150,
                "anneal_epochs": 250,
                "fast_epochs": 100,
                "lr": 0.1,
                "batch_size": 5,
                "prior_std": 2.0,
                "samples": 200,
            },
        ),
        (
            "imdb",
            {
                "sizes": (50_000, 5000, 1000),
                "least_reviews": 10,
                "length": 120,
                "dim": 32,
                "heads": 4,
                "hidden": 128,
                "epochs": 30,
                "batch_size": 32,
                "lr": 0.01,
            },
        ),
    ],
)
def test_settings_are_those_of_the_dissertation(part: str, expected: dict[str, Any]) -> None:
    assert {name: getattr(PARTS[part], name) for name in expected} == expected
    if part == "mnist":
        assert {name: getattr(PARTS["fashion-mnist"], name) for name in expected} == expected
    if part == "moons":
        data = PARTS[part].load(None, "cpu")
        assert (len(data.train[1]), len(data.test[1])) == (50, 950)


def test_numbers_are_those_of_the_tables() -> None:
    """Sparsity of the layers, then accuracy not pruned, pruned on principle and at random."""
    rows = {
        ("mnist", "graves/frequentist"): ((83.9, 82.62, 40.0), (98.28, 97.94, 10.01)),
        ("mnist", "graves/bayesian"): ((88.03, 89.79, 44.0), (97.71, 97.65, 10.09)),
        ("mnist", "molchanov/frequentist"): ((57.36, 53.96, 23.9), (98.44, 98.44, 25.73)),
        ("mnist", "molchanov/bayesian"): ((65.56, 72.42, 12.0), (97.70, 97.69, 9.98)),
        ("fashion-mnist", "graves/frequentist"): ((85.14, 86.34, 47.8), (87.93, 84.83, 13.70)),
        ("fashion-mnist", "graves/bayesian"): ((90.26, 94.38, 49.8), (87.34, 87.35, 10.0)),
        ("fashion-mnist", "molchanov/frequentist"): ((57.83, 66.75, 24.9), (87.82, 87.81, 25.91)),
        ("fashion-mnist", "molchanov/bayesian"): ((48.03, 82.89, 15.1), (87.17, 87.30, 13.7)),
        ("moons", "graves/frequentist"): ((13.5, 37.84, 6.0), (99.5, 98.12, 99.75)),
        ("moons", "graves/bayesian"): ((14.5, 33.68, 4.0), (99.75, 99.37, 95.62)),
        ("moons", "molchanov/frequentist"): ((26.67, 34.56, 30.5), (94.87, 94.87, 95.375)),
        ("moons", "molchanov/bayesian"): ((17.0, 19.65, 21.5), (92.875, 98.875, 98.125)),
        ("imdb", "50000/feed-forward"): ((30.76, 28.32), (80.9, 80.9, 80.7)),
        ("imdb", "5000/feed-forward"): ((57.47, 61.25), (74.9, 74.9, 74.6)),
        ("imdb", "1000/feed-forward"): ((93.51, 94.24), (66.8, 66.8, 67.0)),
    }
    for (part, name), (sparsity, accuracy) in rows.items():
        found = PAPER[part][name]
        assert (found["sparsity"], tuple(found["accuracy"].values())) == (sparsity, accuracy), (part, name)
        assert list(found["accuracy"]) == ["none", "principled", "random"]
    assert [PAPER[part]["plain"] for part in ("mnist", "fashion-mnist", "moons")] == [99.97, 93.19, 100.0]
    dense = [PAPER["imdb"][f"{size}/dense"]["accuracy"] for size in (50_000, 5000, 1000)]
    assert dense == [{"none": 80.9}, {"none": 74.3}, {"none": 66.4}]
    assert PAPER["regression"]["energy"] == {"molchanov": 60, "graves": 500}


@pytest.mark.parametrize("pretraining", ["frequentist", "bayesian"])
@pytest.mark.parametrize("objective", ["elbo", "dissertation", "dissertation-3"])
def test_what_the_networks_minimise(objective: str, pretraining: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pretraining == "frequentist"
    spy = Spy(until=2 if plain else 1)
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
    spy = Spy()
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
    spy = Spy()
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
