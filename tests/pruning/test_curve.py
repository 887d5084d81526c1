"""The pruning curve: every point is a pruned network, and the recommended one keeps its promise."""

from __future__ import annotations

import copy
import dataclasses
import io
import math

import pytest
import torch
from rich.console import Console
from torch import nn

import bayeslim as bl
from bayeslim.pruning import LOG_ALPHA, MAGNITUDE, PruneCurve, prune_, prune_curve, sparsity


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """A sparse classifier of two blobs in 20 dimensions, of which 2 matter, and validation data."""
    torch.manual_seed(0)
    x = torch.randn(800, 20)
    y = (x[:, 0] + x[:, 1] > 0).long()
    model = bl.mlp([20, 24, 2], method="ard")
    bl.fit(model, (x[:600], y[:600]), likelihood=bl.Categorical(), epochs=60, lr=1e-2, seed=0, batch_size=100)
    return model, (x[600:], y[600:])


@pytest.fixture(scope="module")
def curve(trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]) -> PruneCurve:
    model, validation = trained
    return prune_curve(model, validation, samples=10)


def test_points_are_pruned_networks(
    trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]], curve: PruneCurve
) -> None:
    model, validation = trained
    assert curve.unpruned == bl.evaluate(model, validation, samples=10)
    for point in curve.points[:: max(1, len(curve.points) // 3)]:
        pruned = copy.deepcopy(model)
        prune_(pruned, threshold=point.threshold)
        assert point.sparsity == pytest.approx(sparsity(pruned, threshold=1e6))
        assert point.scores == bl.evaluate(pruned, validation, samples=10)
        assert point.nll_rise == pytest.approx(point.scores["nll"] - curve.unpruned["nll"], abs=1e-9)
    assert LOG_ALPHA.threshold in [point.threshold for point in curve.points]
    assert [p.sparsity for p in curve.points] == sorted(p.sparsity for p in curve.points)


def test_the_recommendation_is_the_sparsest_within_one_standard_error(curve: PruneCurve) -> None:
    good = [p for p in curve.points if p.nll_rise <= p.nll_rise_error]
    assert curve.best.sparsity == max(p.sparsity for p in good)
    assert curve.best.sparsity > 0.5
    assert curve.best.scores["accuracy"] > curve.unpruned["accuracy"] - 0.03
    assert curve.recommended == curve.best.threshold


def test_principled_beats_random_at_the_recommended_point(curve: PruneCurve) -> None:
    assert curve.best.random is not None
    assert curve.best.scores["nll"] < curve.best.random["nll"] - 0.1


def test_the_error_is_that_of_paired_differences(
    trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    model, (x, y) = trained
    found = prune_curve(model, (x, y), thresholds=[0.0], samples=0, random=False).points[0]
    pruned = copy.deepcopy(model)
    prune_(pruned, threshold=0.0)
    nll = [-bl.predict(m, x, method="mean").mean.double()[torch.arange(len(y)), y].log() for m in (model, pruned)]
    difference = nll[1] - nll[0]
    assert found.random is None
    assert found.nll_rise == pytest.approx(difference.mean().item(), abs=1e-6)
    assert found.nll_rise_error == pytest.approx(difference.std().item() / math.sqrt(len(y)), rel=1e-4)


def test_tables_and_figure(curve: PruneCurve) -> None:
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(curve.table())
    console.print(curve.layer_table())
    text = console.export_text()
    assert text.count("*") == 1
    assert f"{curve.best.sparsity:.2%}" in text
    axes = curve.plot().axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["log alpha", "random", "unpruned", "recommended"]


def test_the_model_is_untouched(trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]) -> None:
    model, validation = trained
    before = copy.deepcopy(model.state_dict())
    prune_curve(model, validation, MAGNITUDE, thresholds=[0.1], samples=0, structure="output")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_thresholds_that_empty_a_layer_are_left_out(
    trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    model, validation = trained
    found = prune_curve(model, validation, MAGNITUDE, thresholds=[0.0, 1e6], samples=0, random=False)
    assert [point.threshold for point in found.points] == [0.0]
    with pytest.raises(ValueError, match="every threshold would empty a layer"):
        prune_curve(model, validation, MAGNITUDE, thresholds=[1e6], samples=0)


def test_errors(trained: tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]) -> None:
    model, validation = trained
    with pytest.raises(ValueError, match="`tolerance` must not be negative"):
        prune_curve(model, validation, tolerance=-1.0)
    with pytest.raises(ValueError, match="`thresholds` is empty"):
        prune_curve(model, validation, thresholds=[])
    with pytest.raises(ValueError, match="`threshold` must be a finite float"):
        prune_curve(model, validation, thresholds=[math.nan])
    with pytest.raises(ValueError, match="no Bayesian layers"):
        prune_curve(nn.Linear(20, 2), validation)


def test_names_of_layers_and_criteria_are_text(curve: PruneCurve) -> None:
    best = dataclasses.replace(curve.best, per_layer={"[/x]\x1b[2J": 0.5})
    odd = dataclasses.replace(curve, points=[best], criterion=dataclasses.replace(LOG_ALPHA, name=r"[red] $\frac{$"))
    console = Console(file=io.StringIO(), width=200)
    for table in (odd.table(), odd.layer_table()):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert r"[/x]\x1b[2J" in said and r"[red] $\frac{$ at" in said and r"pruning by [red] $\frac{$" in said
    odd.plot().draw_without_rendering()
