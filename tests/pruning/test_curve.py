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
from bayeslim.pruning.curve import CurvePoint


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


def printed(curve: PruneCurve, width: int = 80) -> str:
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(curve.table())
    return console.export_text()


def test_the_table_fits_into_80_columns(curve: PruneCurve) -> None:
    assert "…" not in printed(curve) and printed(curve).split() == printed(curve, 200).split()
    scores = {"nll": 10531.2345, "rmse": 99999.4321, "coverage95": 0.9512}
    point = CurvePoint(-12.345, 0.98765, scores, 0.0, 0.0, {"nll": 1e30, "rmse": math.inf, "coverage95": 2.5e-6}, {})
    said = printed(dataclasses.replace(curve, unpruned=scores, points=[point]))
    assert "…" not in said and max(map(len, said.splitlines())) <= 80
    for text in ("threshold", "sparsity", "coverage95", "-12.3", "98.77%", "10531.2345", "99999.4321", "0.9512",
                 "random", "1e+30", "inf", "2.5e-06"):  # fmt: skip
        assert text in said.split(), text


def test_no_point_is_recommended_by_infinite_scores() -> None:
    """One target so far away that its density is zero in 32 bits, pruned or not."""
    torch.manual_seed(0)
    x = torch.randn(20, 3)
    y = x[:, :1].clone()
    y[7] = 1e30
    model = bl.mlp([3, 8, 1], method="ard")
    bl.likelihoods.remember_likelihood_(model, bl.likelihoods.Gaussian(noise=0.5))
    found = prune_curve(model, (x, y), samples=2)
    assert all(math.isnan(point.nll_rise) for point in found.points) and not found.decided
    for ask in (lambda: found.best, lambda: found.recommended, found.layer_table):
        with pytest.raises(ValueError, match="no threshold is better than another: correct the rows with extreme"):
            ask()
    assert "*" not in printed(found)
    figure = found.plot("rmse")
    assert "recommended" not in [line.get_label() for line in figure.axes[0].get_lines()]


def test_points_of_which_nothing_is_known_are_not_recommended(curve: PruneCurve) -> None:
    worse, lost = (dataclasses.replace(curve.points[-1], nll_rise=rise, nll_rise_error=0.1) for rise in (9.0, math.nan))
    for points in ([lost, worse], [worse, lost]):
        assert dataclasses.replace(curve, points=points).best is worse


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
