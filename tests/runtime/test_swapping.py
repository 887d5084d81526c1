"""Modules are other for a while, and the ones they were afterwards."""

from typing import Any

import pytest
import torch
from torch import nn

from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.swapping import swapped


class Doubled(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_attributes_methods_parameters_buffers_and_types_come_back() -> None:
    layer, norm = nn.Linear(2, 3), nn.BatchNorm1d(3)
    layers: tuple[Any, ...] = layer, norm
    before = [(dict(vars(one)), dict(one._parameters), dict(one._buffers)) for one in layers]
    ones = torch.ones(3, 2)
    places: list[tuple[nn.Module, str, Any]] = [
        (layer, "weight", ones),
        (layer, "bias", None),
        (layer, "__class__", Doubled),
        (norm, "running_mean", torch.ones(3)),
        (norm, "training", False),
        (norm, "momentum", 0.5),
        (norm, "forward", lambda x: norm.momentum * x + norm.running_mean),
        (norm, "momentum", 0.25),  # the last of two for one place holds, the first one's before comes back
    ]
    with pytest.raises(ZeroDivisionError), swapped(places):
        assert layer.weight is ones and not norm.training
        assert torch.equal(norm(layer(torch.ones(1, 2))), torch.full((1, 3), 0.25 * 4 + 1))
        layer.weight, norm.momentum = nn.Parameter(ones), 1.0  # what the block puts there goes too
        raise ZeroDivisionError
    assert [(dict(vars(one)), dict(one._parameters), dict(one._buffers)) for one in layers] == before
    assert type(layer) is nn.Linear


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_mode_of_a_script_comes_back() -> None:
    model = nn.Sequential(nn.Linear(2, 3), torch.jit.script(nn.Dropout()))
    with evaluation_mode(model):
        assert not any(module.training for module in model.modules())
    assert all(module.training for module in model.modules())


def test_nothing_changes_where_a_place_cannot_be_changed() -> None:
    layer = nn.Linear(2, 3)
    weight = layer.weight
    with pytest.raises(TypeError), swapped([(layer, "weight", torch.ones(3, 2)), (layer, "__class__", int)]):
        pass
    assert layer.weight is weight and type(layer) is nn.Linear
