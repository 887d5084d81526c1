"""The LeNets of the papers have the papers' sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from bayeslim import bayesianize_, kl, layers
from bayeslim.models import lenet5_caffe, lenet_300_100


@pytest.mark.parametrize(
    ("build", "shapes", "weights"),
    [
        (lenet_300_100, [(300, 784), (100, 300), (10, 100)], 266_200),
        (lenet5_caffe, [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)], 430_500),
    ],
    ids=["300-100", "5-caffe"],
)
def test_shapes_and_weight_counts(
    build: Callable[[], nn.Sequential], shapes: list[tuple[int, ...]], weights: int
) -> None:
    model = build()
    found = [module.weight for module in model if isinstance(module, nn.Linear | nn.Conv2d)]
    assert [tuple(weight.shape) for weight in found] == shapes
    assert sum(weight.numel() for weight in found) == weights
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert type(model[-1]) is nn.Linear


def test_they_convert_as_a_whole() -> None:
    torch.manual_seed(0)
    model = bayesianize_(lenet5_caffe())
    assert sum(isinstance(module, layers.BayesLayer) for module in model.modules()) == 4
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert kl(model).item() > 0
