"""What a network says that has pruned units and cannot lose them."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.posteriors import MeanField
from bayeslim.pruning import MAGNITUDE
from bayeslim.pruning.compact import compact


def pruned(*layers: nn.Module, posterior: Any = MeanField) -> nn.Module:
    torch.manual_seed(0)
    model = bl.bayesianize_(nn.Sequential(*layers), posterior=posterior)
    bl.prune_(model, MAGNITUDE, amount=0.5, structure="output", where=lambda name, layer: name == "0")
    return model.eval()


class Own(MeanField):
    """A posterior of the user, about which nothing is known."""


@pytest.mark.parametrize(
    ("model", "x", "message"),
    [
        (
            pruned(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 2, 1)),
            torch.randn(2, 1, 6, 6),
            "'0' keeps 4 of 8 outputs: GroupNorm '1' needs them all",
        ),
        (
            pruned(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), posterior=Own),
            torch.randn(2, 4),
            "'0' keeps 4 of 8 outputs: its posterior or prior is not one that can be cut",
        ),
        (
            pruned(nn.Linear(4, 8), nn.Softmax(-1), nn.Linear(8, 2)),
            torch.randn(2, 4),
            "Softmax '1' needs them all. docs/pruning.md lists",
        ),
    ],
    ids=["norm", "posterior", "softmax"],
)
def test_why_pruned_units_stay(model: nn.Module, x: Tensor, message: str) -> None:
    with pytest.warns(UserWarning, match=f"no unit could be removed.*{message}"):
        compact(model, x)


def test_a_recurrent_layer_is_left_whole() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(3, 6, batch_first=True), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x)[0][:, -1])

    torch.manual_seed(0)
    model = bl.bayesianize_(Reads()).eval()
    bl.prune_(model, MAGNITUDE, amount=0.5, structure="output", where=lambda name, layer: "lstm" in name)
    with pytest.warns(UserWarning, match="it is inside LSTM 'lstm', left whole"):
        compact(model, torch.randn(2, 5, 3))


def test_long_lists_are_cut() -> None:
    layers = [part for _ in range(4) for part in (nn.Linear(8, 8), nn.LayerNorm(8))]
    torch.manual_seed(0)
    model = bl.bayesianize_(nn.Sequential(*layers, nn.Linear(8, 2))).eval()
    bl.prune_(model, MAGNITUDE, amount=0.25, structure="output", scope="layer", where=lambda name, _: name != "8")
    with pytest.warns(UserWarning, match="'4' keeps 2 of 8 outputs: LayerNorm '5' needs them all; and 1 more layers"):
        compact(model, torch.randn(2, 8))


def test_silence_where_something_shrank_or_only_outputs_are_pruned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compact(pruned(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(2, 4))
        compact(pruned(nn.Linear(4, 8)), torch.randn(2, 4))
