"""Layers that a network calls as `layer(input=x)`, by torch's name of the argument."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning import MAGNITUDE, SparseLinear, compact, footprint, sparse, sparsify_


class Named(nn.Module):
    """Two layers, called by keyword or not."""

    def __init__(self, named: bool, hidden: int = 20) -> None:
        super().__init__()
        self.named, self.first, self.last = named, nn.Linear(4, hidden), nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:
        if not self.named:
            return self.last(F.relu(self.first(x)))
        return self.last(input=F.relu(input=self.first(input=x)))


class Joined(nn.Module):
    """Functions of torch between the layers, called by keyword or not."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.named, self.last = named, nn.Linear(2 * 5 * 4, 3)
        self.left, self.right = nn.Conv2d(1, 5, 3), nn.Conv2d(1, 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        if not self.named:
            return self.last(torch.flatten(torch.cat([self.left(x), self.right(x)], 1), 1))
        joined = torch.cat(tensors=[self.left(input=x), self.right(input=x)], dim=1)
        return self.last(input=torch.flatten(input=joined, start_dim=1))


def alike(kind: Any) -> list[Any]:
    """The network that calls by keyword and the one that does not, of the same weights."""
    torch.manual_seed(0)
    named, plain = kind(True), kind(False)
    plain.load_state_dict(named.state_dict())
    return [named, plain]


def test_sparse_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_times", lambda dense, sparse, x: (1.0, 0.1 * len(x)))
    x, results = torch.randn(5, 4), []
    for model in alike(Named):
        with torch.no_grad():
            model.first.weight[2:] = 0
            expected = model(x)
        choices = sparsify_(model, x, threshold=0.5)
        assert choices["first"].startswith("csr") and choices["last"].startswith("dense (sparsity")
        assert isinstance(model.first, SparseLinear)
        torch.testing.assert_close(model(x), expected)  # the new layer has the name of the argument too
        results.append(choices)
    assert results[0] == results[1]


def test_footprints() -> None:
    named, plain = (footprint(model, torch.randn(2, 4), repeats=0) for model in alike(Named))
    assert named == plain and named.multiply_adds == 4 * 20 + 20 * 3


@pytest.mark.parametrize(("kind", "shape"), [(Named, (4,)), (Joined, (1, 4, 4))])
@pytest.mark.parametrize("bayesian", [True, False])
def test_compaction(kind: Any, shape: tuple[int, ...], bayesian: bool) -> None:
    x, sizes = torch.randn(3, *shape), []
    for model in alike(kind):
        layer = model.first if kind is Named else model.right
        with torch.no_grad():
            layer.weight[1:] = 0
            layer.bias.zero_()
        if bayesian:
            torch.manual_seed(1)
            bl.bayesianize_(model)
            bl.prune_(model, MAGNITUDE, threshold=1e-12, structure="output")
        with bl.using(model, bl.mean_only):
            expected = model(x)
        small = compact(model, x[:1])
        with bl.using(small, bl.mean_only):
            torch.testing.assert_close(small(x), expected)
        sizes.append([tuple(parameter.shape) for parameter in small.parameters()])
        whole = sum(parameter.numel() for parameter in model.parameters())
        assert sum(parameter.numel() for parameter in small.parameters()) < whole
    assert sizes[0] == sizes[1]
