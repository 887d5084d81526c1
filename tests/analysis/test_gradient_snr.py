"""Signal-to-noise ratios of gradients that are made up."""

from __future__ import annotations

import functools
import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.analysis import GradientSNR
from bayeslim.posteriors import KTied


def network(k: int = 0) -> Any:
    posterior = functools.partial(KTied, k=k) if k else bl.posteriors.MeanField
    return bl.bayesianize_(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), posterior=posterior)


def gradients(count: int, seed: int = 0) -> np.ndarray:
    """Random gradients (count, 12) with other means and deviations for every parameter."""
    generator = np.random.default_rng(seed)
    return generator.normal(generator.normal(size=12), generator.uniform(0.5, 2, size=12), size=(count, 12))


def feed(snr: GradientSNR, model: Any, rows: np.ndarray) -> None:
    for row in rows:
        model[0].weight.log_scale.grad = torch.tensor(row, dtype=torch.float32).view(4, 3)
        model[2].weight.log_scale.grad = torch.linspace(-1, 1, 8).view(2, 4) * float(row[0])
        snr.update()


def closed_form(rows: np.ndarray, kind: str) -> np.ndarray:
    signal = rows.mean(0) ** 2 if kind == "ratio" else (rows**2).mean(0)
    return signal / rows.var(0)


@pytest.mark.parametrize("kind", ["ratio", "second_moment"])
@pytest.mark.parametrize("summary", ["mean", "median"])
def test_both_definitions(kind: Any, summary: Any) -> None:
    model, rows = network(), gradients(10)
    snr = GradientSNR(model)
    feed(snr, model, rows)
    ratios = closed_form(rows, kind)
    # torch's median of an even number is the lower of the two in the middle.
    expected = ratios.mean() if summary == "mean" else np.sort(ratios)[5]
    found = snr.values(kind, summary)
    assert list(found) == ["0", "2"]
    assert found["0"] == pytest.approx(expected, rel=1e-5)
    # Of the second layer all gradients are proportional to one series: one ratio for all.
    assert found["2"] == pytest.approx(closed_form(rows, kind)[0], rel=1e-5)


def test_the_second_definition_is_one_more() -> None:
    model = network()
    snr = GradientSNR(model)
    feed(snr, model, gradients(10))
    ratio, moment = snr.values("ratio"), snr.values("second_moment")
    assert all(moment[name] == pytest.approx(ratio[name] + 1) for name in ratio)


def test_only_the_last_batches_count() -> None:
    model, rows = network(), gradients(9)
    snr = GradientSNR(model, window=4)
    feed(snr, model, rows)
    assert snr.values()["0"] == pytest.approx(closed_form(rows[-4:], "ratio").mean(), rel=1e-5)


def test_factors_of_a_tied_posterior_count_together() -> None:
    model = network(k=1)
    snr = GradientSNR(model)
    generator = torch.Generator().manual_seed(1)
    series = [[torch.randn(3, 1, generator=generator), torch.randn(4, 1, generator=generator)] for _ in range(6)]
    for first, second in series:
        model[0].weight.log_in.grad, model[0].weight.log_out.grad = first, second
        model[2].weight.log_in.grad, model[2].weight.log_out.grad = torch.zeros(4, 1), torch.zeros(2, 1)
        snr.update()
    stack = np.stack([torch.cat(pair).flatten().double().numpy() for pair in series])
    assert snr.values()["0"] == pytest.approx(closed_form(stack, "ratio").mean(), rel=1e-5)
    assert math.isnan(snr.values()["2"])


def test_gradients_that_stand_still_are_left_out() -> None:
    model, rows = network(), gradients(10)
    rows[:, :5] = 0.7
    snr = GradientSNR(model)
    feed(snr, model, rows)
    assert snr.values()["0"] == pytest.approx(closed_form(rows[:, 5:], "ratio").mean(), rel=1e-5)
    assert math.isnan(snr.values()["2"]) and math.isnan(snr.values("ratio", "median")["2"])


def test_later_gradients_do_not_change_remembered_ones() -> None:
    model = network()
    snr = GradientSNR(model)
    gradient = torch.ones(4, 3)
    model[0].weight.log_scale.grad, model[2].weight.log_scale.grad = gradient, torch.ones(2, 4)
    snr.update()
    gradient.fill_(3.0)  # in place, as optimisers and accumulation do
    snr.update()
    assert snr.values()["0"] == pytest.approx(2.0**2 / 1.0**2)


def test_real_gradients_reach_it() -> None:
    torch.manual_seed(2)
    model = network()
    snr = GradientSNR(model)
    for _ in range(5):
        model.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        snr.update()
    assert all(0 < value < math.inf for value in snr.values().values())


def test_errors() -> None:
    model = network()
    with pytest.raises(ValueError, match="`window` must be at least 2, got 1"):
        GradientSNR(model, window=1)
    with pytest.raises(ValueError, match="`model` has no Bayesian layers"):
        GradientSNR(nn.Linear(2, 2))
    snr = GradientSNR(model)
    with pytest.raises(RuntimeError, match="the scales of layer '0' have no gradients: call backward"):
        snr.update()
    feed(snr, model, gradients(1))
    with pytest.raises(RuntimeError, match="fewer than two batches were seen"):
        snr.values()
    feed(snr, model, gradients(1))
    with pytest.raises(ValueError, match="`kind` must be 'ratio' or 'second_moment', got 'snr'"):
        snr.values(cast(Any, "snr"))
    with pytest.raises(ValueError, match="`summary` must be 'mean' or 'median', got 'max'"):
        snr.values("ratio", cast(Any, "max"))
