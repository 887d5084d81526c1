"""Networks that keep an activation on themselves can be copied wherever pruning and export do it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export.plain import mean_network
from bayeslim.pruning import MAGNITUDE, random_like


class Keeps(nn.Module):
    """Remembers what its hidden layer gave, alone and in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.hidden: Tensor | None = None
        self.history: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = F.relu(self.first(x))
        self.history = [self.hidden]
        return self.last(self.hidden)


def called() -> nn.Module:
    torch.manual_seed(0)
    model = bl.bayesianize_(Keeps())
    bl.prune_(model, MAGNITUDE, amount=0.5, structure="output", where=lambda name, layer: name == "first")
    model(torch.randn(3, 4))
    assert model.hidden is not None and not model.hidden.is_leaf  # pyright: ignore
    return model


def test_compact() -> None:
    model, x = called(), torch.randn(3, 4)
    small = bl.compact(model, x)
    with torch.no_grad(), bl.using(model, bl.mean_only), bl.using(small, bl.mean_only):
        torch.testing.assert_close(small(x), model(x))
    assert small.get_submodule("first").weight.mean().shape[0] < 8  # pyright: ignore


def test_controls_and_curves() -> None:
    model = called()
    assert random_like(model) is not model
    data = torch.randn(20, 4), torch.randint(2, (20,))
    bl.fit(model, data, likelihood=bl.Categorical(), epochs=1, seed=0)
    model(data[0])
    assert bl.prune_curve(model, data, thresholds=[3.0], samples=2).points


def test_export() -> None:
    model, x = called(), torch.randn(3, 4)
    plain = mean_network(model)
    with torch.no_grad(), bl.using(model, bl.mean_only):
        torch.testing.assert_close(plain(x), model(x))
