"""Networks to be trained side by side, and how."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.posteriors import MeanField

SETTINGS: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 3, "batch_size": 16}
EVERY_WAY = pytest.mark.parametrize("few_weights", [0, 10**9], ids=["one by one", "at once"])


class FixedNoise(MeanField):
    """A mean field whose draws are always the same, so that a network meets the same noise alone and in a stack."""

    noise: Tensor

    def __init__(self, init: Tensor) -> None:
        super().__init__(init, scale=0.2)
        self.register_buffer("noise", torch.randn_like(init))

    def rsample(self) -> Tensor:
        return self.loc + self.log_scale.exp() * self.noise


def plain(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    # No bias before the normalisation: its gradient is rounding error, which Adam turns into full steps.
    return nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def noisy(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.mlp([3, 8, 3], posterior=FixedNoise, estimator=bl.weight_sample, bias_posterior=FixedNoise)
