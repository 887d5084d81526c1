"""The plain network that exports start from."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export.plain import export_torch, mean_network


class Keeps(nn.Module):
    """Remembers its hidden activation, which hangs on the graph of the last pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 2)
        self.hidden: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = F.relu(self.first(x))
        return self.last(self.hidden)


def test_a_network_that_keeps_an_activation_is_exported(tmp_path: Any) -> None:
    torch.manual_seed(0)
    model, x = bl.bayesianize_(Keeps()), torch.randn(4, 3)
    model(x)
    plain: Any = mean_network(model)
    assert type(plain.first) is nn.Linear and not plain.training
    with torch.no_grad(), bl.using(model, bl.mean_only):
        torch.testing.assert_close(plain(x), model(x))
    model(x)
    export_torch(model, tmp_path / "plain.safetensors")
    assert (tmp_path / "plain.safetensors").stat().st_size > 0
