"""The VDP++ experiment on made-up images, at a tiny size."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from bayeslim_papers import experiment
from bayeslim_papers.vdp.mnist import PRIORS, CovarianceNetwork, Images, VdpMnist, build, costs
from bayeslim_papers.vdp.results import methods as table
from papers.stand_in import StandIn, Stopped, values

EXPECTED: dict[str, bl.priors.Prior] = {
    "bbb": bl.priors.ScaleMixture(),
    "vdp-cov": bl.priors.Normal(0.0, 1.0),
    "vdp": bl.priors.Normal(0.0, 0.05),
    "vdp-ard": bl.priors.ARD(),
}

CONFIG = VdpMnist(
    methods=("det", "bbb", "vdp"),
    seeds=(0, 1),
    epochs=2,
    batch_size=32,
    samples=4,
    fractions=(0.0, 0.9),
    explained=2,
)


def images(seed: int = 0) -> Images:
    """Ten noisy patterns, and noise alone."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.rand(10, 1, 28, 28, generator=generator)

    def part(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(10, (count,), generator=generator)
        return (patterns[y] + 0.1 * torch.randn(count, 1, 28, 28, generator=generator)), y

    return Images(part(320), part(30), torch.rand(30, 1, 28, 28, generator=generator))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return experiment.run(CONFIG, images())


def test_the_record_is_complete_and_json(record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record))["config"]["epochs"] == 2
    assert [(run["method"], run["seed"]) for run in record["runs"]] == [
        (method, seed) for seed in (0, 1) for method in CONFIG.methods
    ]
    for run in record["runs"]:
        assert [point["snr"] for point in run["noise"]] == [-6, -3, 1, 5, 10, 20, 40]
        assert [point["fraction"] for point in run["pruned"]] == [0.0, 0.9]
        assert 0 <= run["accuracy"] <= 100 and run["infidelity"] >= 0 and run["sensitivity_max"] >= 0
        assert ("by_samples" in run) == (run["method"] == "vdp")


def test_a_plain_network_has_no_variance_and_the_others_do(record: dict[str, Any]) -> None:
    for run in record["runs"]:
        variances = [point["variance"] for point in run["noise"]]
        assert all(value == 0 for value in variances) == (run["method"] == "det")


def test_the_table_holds_every_method_and_the_tests(record: dict[str, Any]) -> None:
    distinct = copy.deepcopy(record)  # scipy warns of equal numbers
    for number, run in enumerate(distinct["runs"]):
        run["accuracy"] += 0.1 * number**1.5
        run["noise"][0]["accuracy"] += 0.01 * number**1.5
    text = table(distinct)
    for words in ("| det |", "| bbb |", "| vdp |", "ANOVA", "at -6 dB, vdp against det", "infidelity", "200 samples"):
        assert words in text


def test_costs_compare_with_the_plain_network() -> None:
    (x, y), *_ = images()
    found = costs(VdpMnist(methods=("det", "vdp"), batch_size=8), (x, y), modes=("eager",))
    assert set(found) == {"det, eager", "vdp, eager"}
    assert all(cost["milliseconds"] > 0 for cost in found.values())
    assert "| vdp, eager |" in table({"costs": found})


def test_full_covariances_train_and_predict_like_any_network() -> None:
    (x, y), *_ = images()
    model = build(VdpMnist(), "vdp-cov")
    assert isinstance(model, CovarianceNetwork)
    output = model(x[:1])
    assert isinstance(output, Gaussian) and output.shape == (1, 10)
    bl.nelbo(model, x[:1], y[:1], likelihood=bl.Categorical(), num_data=10).loss.backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_records_of_runs_and_of_costs_are_joined(record: dict[str, Any]) -> None:
    halves = [record | {"runs": [one for one in record["runs"] if one["seed"] == seed]} for seed in (0, 1)]
    costs = {"costs": {}, "pass_over_det": 2.5}
    assert VdpMnist.merged([*halves, costs]) == record | costs
    assert VdpMnist.merged([costs]) == costs


def test_the_weight_of_the_kl_follows_from_the_authors_code() -> None:
    """They add the KL and 1000 times the mean loss of 60 000 images."""
    assert VdpMnist().cov_kl_weight == 60_000 / 1000


@pytest.mark.parametrize("method", PRIORS)
def test_priors_and_estimators(method: str) -> None:
    model, expected = build(VdpMnist(), method), EXPECTED[method]
    model = model.model if isinstance(model, CovarianceNetwork) else model
    layers = [layer for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert len(layers) == 5
    for layer in layers:
        assert type(layer.prior) is type(expected) and layer.prior.config() == expected.config()
        assert layer.estimator is (bl.weight_sample if method == "bbb" else bl.moments)


@pytest.mark.parametrize("method", ["det", "vdp", "vdp-cov"])
def test_what_they_minimise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ELBO by Adam with amsgrad; vdp-cov on fewer images, with the authors' weight of the KL."""
    stand_in, slow = StandIn(), method == "vdp-cov"
    monkeypatch.setattr(bl, "fit", stand_in)
    with pytest.raises(Stopped):
        VdpMnist().fit_(method, nn.Linear(1, 1), (torch.zeros(12_801, 1), torch.zeros(12_801, dtype=torch.long)), 0)
    options = stand_in.calls[0]
    assert len(stand_in.arguments[1][0]) == (12_800 if slow else 12_801)
    assert (options["epochs"], options["batch_size"]) == ((2, 64) if slow else (25, 512))
    assert values(options["kl_schedule"], 25, (0, 24)) == [60.0 if slow else 1.0] * 2
    optimizer = options["optimizer"]([nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam
    assert (optimizer.defaults["lr"], optimizer.defaults["amsgrad"]) == (1e-3, True)
