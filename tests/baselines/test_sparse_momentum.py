"""Sparse momentum: what is kept, moved and grown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.baselines import SparseMomentum
from bayeslim.baselines.sparse_momentum import shared_out
from contracts.members import over
from training.problems import blobs


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 3))


def test_training_keeps_the_number_of_weights_and_moves_some() -> None:
    model = network()
    sparse = SparseMomentum(model, density=0.25, epochs=6)
    first = [kept.clone() for kept in sparse.kept]
    assert [int(kept.sum()) for kept in first] == [30, 30]
    again = SparseMomentum(network(), density=0.25, epochs=6, seed=np.int64(0))  # pyright: ignore[reportArgumentType]
    assert all(torch.equal(kept, other) for kept, other in zip(first, again.kept, strict=True))

    def after_epoch(*_: Any) -> None:
        sparse.after_epoch()
        assert sparse.sparsity() == 0.75
        for layer, kept in zip(sparse.layers, sparse.kept, strict=True):
            assert not bool(layer.weight[~kept].any())

    data = blobs(120)
    bl.fit(
        model,
        data,
        likelihood=bl.Categorical(),
        epochs=6,
        batch_size=16,
        optimizer=lambda groups: sparse.attach(torch.optim.SGD(groups, lr=0.1, momentum=0.9)),
        after_epoch=after_epoch,
        seed=0,
        progress=False,
    )
    assert any(bool((kept & ~begun).any()) for kept, begun in zip(sparse.kept, first, strict=True))
    assert bl.evaluate(model, data)["accuracy"] > 0.8


def test_one_step_by_hand() -> None:
    """`r = 0.5 (1 + cos(pi / 2)) / 2 = 1/4`: of 8 kept the 2 smallest go, and the 2 of largest `|m|` come."""
    model = nn.Linear(4, 4)
    sparse = SparseMomentum(model, density=0.5, epochs=2)
    kept = torch.tensor([1, 1, 0, 0] * 4, dtype=torch.bool).view(4, 4)
    sparse.kept[0] = kept.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sparse.attach(optimizer)
    with torch.no_grad():
        model.weight.copy_(torch.arange(16.0).view(4, 4) + 1)
        model.weight.mul_(kept)
    momentum = torch.zeros(4, 4)
    momentum[0, 3], momentum[2, 2], momentum[3, 3] = 0.5, -0.9, 0.7
    optimizer.state[model.weight]["momentum_buffer"] = momentum
    sparse.after_epoch()
    expected = kept.clone()
    expected[0, :2] = False
    expected[2, 2] = expected[3, 3] = True
    assert torch.equal(sparse.kept[0], expected)
    assert model.weight[2, 2] == 0 and model.weight[0, 0] == 0 and model.weight[1, 0] == 5


def test_the_rate_ends_at_zero() -> None:
    model = network()
    sparse = SparseMomentum(model, density=0.5, epochs=1)
    optimizer = sparse.attach(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    model(torch.randn(5, 3)).square().mean().backward()
    optimizer.step()
    before = [kept.clone() for kept in sparse.kept]
    sparse.after_epoch()
    assert all(torch.equal(a, b) for a, b in zip(before, sparse.kept, strict=True))


@over(
    "total, shares, room, expected",
    [
        (10, [3.0, 1.0, 1.0], [20, 20, 20], [6, 2, 2]),
        (10, [3.0, 1.0, 1.0], [4, 20, 20], [4, 3, 3]),
        (3, [0.0, 0.0], [5, 5], [2, 1]),
        (9, [math.pi, 1e-9], [8, 8], [8, 1]),
        (0, [1.0], [3], [0]),
    ],
)
def test_shares(total: int, shares: list[float], room: list[int], expected: list[int]) -> None:
    assert shared_out(total, shares, room) == expected


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"`density` must lie in \(0, 1\), got 1.0"):
        SparseMomentum(network(), density=1.0, epochs=3)
    with pytest.raises(ValueError, match=r"`prune_rate` must lie in \(0, 1\), got 0.0"):
        SparseMomentum(network(), density=0.5, epochs=3, prune_rate=0.0)
    with pytest.raises(ValueError, match=r"`epochs` must be a positive integer, got 0"):
        SparseMomentum(network(), density=0.5, epochs=0)
    with pytest.raises(ValueError, match=r"there is no momentum: `attach` an optimiser"):
        SparseMomentum(network(), density=0.5, epochs=3).after_epoch()
