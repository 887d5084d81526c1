"""Scores of the k-tied experiment against their formulas."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.posteriors import MeanField
from bayeslim_papers.k_tied import scoring
from bayeslim_papers.k_tied.scoring import CALIBRATION, METRICS, log_probabilities, score, truncated

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(200, 16, generator=GENERATOR), torch.randint(10, (200,), generator=GENERATOR)


def network(scale: float = 0.05) -> nn.Module:
    torch.manual_seed(0)
    model = bl.mlp([16, 12, 10], posterior=lambda init: MeanField(init, scale=scale), estimator=bl.weight_sample)
    for layer in model:
        if isinstance(layer, bl.layers.BayesLayer):
            layer.weight.get_parameter("log_scale").data += torch.randn_like(layer.weight.mean())
    return model


def test_scores_are_the_formulas() -> None:
    """One sample: the bound is the mean log loss plus the divergence per datum."""
    model = network()
    found = score(model, (X, Y), num_data=320, samples=1)
    torch.manual_seed(0)
    with torch.no_grad():
        log_p = model(X).log_softmax(-1).double()
    nll = -log_p[torch.arange(200), Y].mean().item()
    assert found["nll"] == pytest.approx(nll, rel=1e-6)
    assert found["nelbo"] == pytest.approx(nll + bl.kl(model).item() / 320, rel=1e-6)
    assert found["accuracy"] == pytest.approx(100 * (log_p.argmax(1) == Y).double().mean().item())
    many = score(model, (X, Y), num_data=320, samples=50)
    assert many["nll"] < many["nelbo"] - bl.kl(model).item() / 320  # the average prediction is better


def test_parts_of_the_data_give_the_same_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise it does not matter how many examples share a pass."""
    model = network(1e-9)
    whole = score(model, (X, Y), 320, 2)
    monkeypatch.setattr(scoring, "ROWS", 70)
    assert score(model, (X, Y), 320, 2) == pytest.approx(whole, rel=1e-6)


def test_calibration_has_the_papers_constant() -> None:
    found = score(network(), (X, Y), 320, 3, METRICS | CALIBRATION)
    assert list(found) == ["nelbo", "nll", "accuracy", "brier", "ece"]
    sure = torch.eye(10)[Y].double()
    assert CALIBRATION["brier"](sure, Y) == pytest.approx(-1.0)
    assert CALIBRATION["ece"](sure, Y) == pytest.approx(0.0)


def test_one_logit_is_two_classes() -> None:
    logits = torch.tensor([[0.0], [3.0], [-200.0]])
    expected = torch.stack([(-logits[:, 0]).sigmoid(), logits[:, 0].sigmoid()], 1).double()
    found = log_probabilities(logits)
    assert found.dtype == torch.float64 and bool(found.isfinite().all())
    torch.testing.assert_close(found.exp(), expected)


def test_networks_are_scored_in_evaluation_mode_by_weight_samples() -> None:
    """Statistics of normalisation do not move, and flipout comes back."""
    torch.manual_seed(0)
    model = bl.bayesianize_(nn.Sequential(nn.Linear(16, 10), nn.BatchNorm1d(10)), estimator=bl.flipout)
    before = copy.deepcopy(model.state_dict())
    seen: list[object] = []
    model[0].register_forward_hook(lambda layer, *_: seen.append(layer.estimator))  # pyright: ignore[reportIndexIssue]
    score(model, (X, Y), 320, 2)
    assert seen == [bl.weight_sample] * 2
    assert model.training and model[0].estimator is bl.flipout  # pyright: ignore[reportIndexIssue]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def test_truncation_of_all_ranks_changes_nothing() -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = truncated(model, (1, 12), (X, Y), 320, 4)
    assert list(found) == ["rank 1", "rank 12"]
    assert found["rank 12"] == pytest.approx(score(model, (X, Y), 320, 4), rel=1e-4)
    assert found["rank 1"]["nelbo"] != pytest.approx(found["rank 12"]["nelbo"], rel=1e-3)

    def same(name: str, value: Tensor) -> bool:
        return torch.equal(value, before[name])

    assert all(same(name, value) for name, value in model.state_dict().items())
