"""Plain perceptrons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bayeslim.models import ACTIVATIONS, mlp
from bayeslim.models.mlp import Sin
from contracts.members import over


def test_layers_and_widths() -> None:
    model = mlp([3, 5, 4, 2])
    assert [type(module) for module in model] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    shapes = [tuple(module.weight.shape) for module in model if isinstance(module, nn.Linear)]
    assert shapes == [(5, 3), (4, 5), (2, 4)]
    assert model(torch.zeros(7, 3)).shape == (7, 2)


@over("name", ACTIVATIONS)
def test_every_activation_by_name(name: str) -> None:
    model = mlp([3, 5, 2], name)
    assert type(model[1]) is type(ACTIVATIONS[name]())
    assert bool(model(torch.randn(2, 3, generator=torch.Generator().manual_seed(0))).isfinite().all())


def test_one_activation_per_layer_and_a_final_one() -> None:
    model = mlp([3, 5, 5, 2], ["tanh", lambda: nn.LeakyReLU(0.2)], final_activation="softplus", bias=False)
    kinds = [type(module) for module in model]
    assert kinds == [nn.Linear, nn.Tanh, nn.Linear, nn.LeakyReLU, nn.Linear, nn.Softplus]
    assert all(module.bias is None for module in model if isinstance(module, nn.Linear))


def test_a_single_layer_has_no_activation() -> None:
    assert [type(module) for module in mlp([3, 2])] == [nn.Linear]


def test_sine() -> None:
    x = torch.linspace(-4, 4, 9)
    assert torch.equal(Sin()(x), x.sin())


def test_sizes_may_be_numpys() -> None:
    sizes: Any = np.array([3, 4, 2])
    assert [type(layer.in_features) for layer in mlp(sizes) if isinstance(layer, nn.Linear)] == [int, int]


@over("sizes", [[3], [], [3, 0], [3, -1, 2], [3, 2.5], [3, True]])
def test_sizes_that_make_no_sense_are_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="`sizes` must be at least two positive integers, got"):
        mlp(sizes)


def test_activations_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one per hidden layer \(2\), got 1"):
        mlp([3, 4, 4, 2], ["relu"])
    with pytest.raises(ValueError, match="unknown activation 'swish': choose from relu, leaky_relu"):
        mlp([3, 4, 2], "swish")
