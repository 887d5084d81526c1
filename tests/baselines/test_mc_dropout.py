"""Dropout that stays random, against its moments in closed form."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.baselines import MCDropout, keep_dropout_
from bayeslim.likelihoods import Gaussian
from contracts.members import over
from contracts.statistics import assert_moments

COUNT = 20_000


def test_spread_of_a_linear_layer() -> None:
    """`Var[sum_j w_j x_j z_j / (1 - p)] = sum_j w_j^2 x_j^2 p / (1 - p)`, and inputs are independent."""
    torch.manual_seed(0)
    layer, x, p = nn.Linear(4, 2, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64), 0.3
    model = keep_dropout_(nn.Sequential(nn.Dropout(p), layer).eval())
    prediction = bl.predict(model, x, samples=COUNT, likelihood=Gaussian(0.1), seed=0)
    assert prediction.samples is not None
    variance = p / (1 - p) * x.square() @ layer.weight.square().T
    assert_moments(prediction.samples, layer(x).detach(), variance.detach())
    torch.testing.assert_close(prediction.epistemic, prediction.samples.var(0, correction=0))
    across = torch.corrcoef(prediction.samples[:, :, 0].T)[0, 1:]
    assert across.abs().max() < 5 / COUNT**0.5


def test_whole_channels() -> None:
    """`Dropout2d` drops a channel as a whole: the mean of its 9 positions has the variance of one."""
    x = torch.ones(2, 3, 3, 3, dtype=torch.float64)
    model = keep_dropout_(nn.Sequential(nn.Dropout2d(0.2), nn.AvgPool2d(3), nn.Flatten()))
    prediction = bl.predict(model, x, samples=COUNT, likelihood=Gaussian(0.1), seed=0)
    assert prediction.samples is not None
    assert_moments(prediction.samples, torch.ones(2, 3).double(), torch.full((2, 3), 0.25).double())


def test_a_seed_repeats_it_and_nothing_is_random_without() -> None:
    x = torch.randn(5, 4)
    plain = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    still = bl.predict(plain, x, samples=50, likelihood=bl.Categorical())
    assert still.epistemic.max() == 0
    model = keep_dropout_(plain)
    first, again = (bl.predict(model, x, samples=50, likelihood=bl.Categorical(), seed=1) for _ in range(2))
    assert torch.equal(first.mean, again.mean)
    assert first.epistemic.min() > 0


def test_conversion_keeps_rates_hooks_and_shared_layers() -> None:
    shared, seen = nn.Dropout(0.25, inplace=True), list[int]()
    shared.register_forward_hook(lambda *_: seen.append(1))
    model = nn.Sequential(shared, nn.Linear(2, 2), shared, nn.Dropout1d(0.1))
    assert keep_dropout_(model) is model
    first, second, third = model[0], model[2], model[3]
    assert isinstance(first, MCDropout) and first is second and first.p == 0.25
    assert isinstance(third, MCDropout) and third.p == 0.1
    assert isinstance(keep_dropout_(nn.Dropout(0.5)), MCDropout)
    x = torch.ones(1, 2)
    model(x)
    assert torch.equal(x, torch.ones(1, 2)) and len(seen) == 2
    assert repr(pickle.loads(pickle.dumps(MCDropout(0.25)))) == "MCDropout(p=0.25)"


@over("p", [-0.1, 1.0])
def test_bad_rates(p: float) -> None:
    with pytest.raises(ValueError, match=r"`p` must lie in \[0, 1\), got"):
        MCDropout(p)


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"has no nn.Dropout to keep random"):
        keep_dropout_(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"0 \(LSTM\) has a dropout of 0.3 of its own"):
        keep_dropout_(nn.Sequential(nn.LSTM(2, 2, 2, dropout=0.3), nn.Dropout(0.1)))
    with pytest.raises(ValueError, match=r"holds MCDropout, which has no mean pass"):
        bl.predict(nn.Sequential(MCDropout(0.1)), torch.ones(1, 2), method="mean", likelihood=bl.Categorical())
