"""What a network keeps on itself while it runs, after a prediction."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


class Keeps(nn.Module):
    """Writes what it computes wherever a network may."""

    held: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = bl.layers.Linear(3, 4), bl.layers.Linear(4, 2)
        self.register_buffer("held", torch.zeros(1))
        self.old: Any = torch.ones(2)
        self.maps: list[Any] = []
        self.named: dict[str, Any] = {"start": 1, "deep": [2]}
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        self.new, self.old, self.held, self.pair = h, h, h, (h, [h])
        self.maps.append(h)
        self.named["h"] = h
        self.named["deep"].append(h)
        self.count += 1
        return self.second(h)


@pytest.mark.parametrize("options", [{}, {"estimator": bl.weight_sample}, {"batch_size": 2}])
def test_tensors_of_a_vectorised_pass_go_back_to_what_was_there(options: dict[str, Any]) -> None:
    model = Keeps()
    bl.predict(model, X, likelihood=bl.Categorical(), samples=4, seed=0, **options)
    assert not hasattr(model, "new") and not hasattr(model, "pair")
    assert torch.equal(model.old, torch.ones(2)) and torch.equal(model.held, torch.zeros(1))
    assert model.maps == [] and model.named == {"start": 1, "deep": [2]} and model.count > 0
    copy.deepcopy(model)
    pickle.loads(pickle.dumps(model))
    assert "held" in model.state_dict()


def test_they_go_back_after_a_failure_and_after_snapshots() -> None:
    model = Keeps()
    wrong = bl.likelihoods.Gaussian(outputs=3)
    with pytest.raises(ValueError, match="a noise for 3 outputs"):
        bl.predict(model, X, likelihood=wrong, samples=4)
    assert not hasattr(model, "new") and torch.equal(model.old, torch.ones(2))
    snapshots = bl.Snapshots(model, [])
    for number in range(3):
        snapshots.take_(number)
    bl.evaluate(snapshots, (X, torch.arange(5) % 2), likelihood=bl.Categorical())
    assert not hasattr(model, "new") and model.maps == [] and torch.equal(model.held, torch.zeros(1))


def test_plain_tensors_stay() -> None:
    """The activations at the posterior mean can be looked at."""
    model = Keeps()
    bl.predict(model, X, likelihood=bl.Categorical(), method="mean")
    with bl.using(model, bl.mean_only), torch.no_grad():
        expected = model.first(X)
    for kept in (model.new, model.old, model.held, model.pair[0], model.maps[0], model.named["h"]):
        assert torch.equal(kept, expected)
    bl.predict(model, X, likelihood=bl.Categorical(), samples=4)
    assert torch.equal(model.new, expected) and len(model.maps) == 1
