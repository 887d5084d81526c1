"""The weights that an amount leaves are those of a stable sort of all scores, which nobody makes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.masks import mask_of
from bayeslim.pruning import MAGNITUDE, prune_
from bayeslim.pruning.prune import bayes_layers
from contracts.cases import each

MANY = 4096
KINDS: dict[str, Callable[[int], Tensor]] = {
    "normal": torch.randn,
    "equal": torch.ones,
    "two values": lambda count: (torch.rand(count) < 0.7).float(),
    "half of them zero": lambda count: torch.randn(count) * (torch.arange(count) % 2),
    "far apart": lambda count: torch.randn(count).mul_(20).exp_(),
    "periodic": lambda count: (torch.arange(count) % 17 > 0) * (1 + torch.rand(count)),  # what a sample may miss
    "sorted": lambda count: torch.linspace(1, 2, count),
}


def network(values: Tensor) -> nn.Sequential:
    """Two layers with these means, a third and the rest of them."""
    layers = [bl.layers.Linear(len(part), 1, bias=False) for part in values.tensor_split([len(values) // 3])]
    for layer, part in zip(layers, values.tensor_split([len(values) // 3]), strict=True):
        layer.to(part.dtype).weight.get_parameter("loc").data.copy_(part[None])
    return nn.Sequential(*layers)


def kept(model: nn.Module) -> Tensor:
    return torch.cat([mask_of(layer.weight).flatten() for layer in bayes_layers(model).values()]).bool()


@each("kind", KINDS)
@each("sample", [1, 16, 256])
def test_the_lowest_go_and_the_first_of_equal_ones(kind: str, sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeslim.pruning.prune.SAMPLE", sample)
    torch.manual_seed(0)
    values = KINDS[kind](MANY)
    order = values.abs().argsort(stable=True)
    for amount in (0.0, 1e-4, 0.3, 0.7, 0.9999):
        model = network(values)
        prune_(model, MAGNITUDE, amount=amount, allow_empty=True)
        assert torch.equal(kept(model)[order], torch.arange(MANY) >= round(amount * MANY)), amount


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_of_all_types_and_of_masks_that_grow(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = torch.randn(MANY).to(dtype)
    model, order = network(values), values.abs().argsort(stable=True)
    for amount in (0.25, 0.5):  # what is pruned scores minus infinity, and is counted
        prune_(model, MAGNITUDE, amount=amount)
        assert torch.equal(kept(model)[order], torch.arange(MANY) >= amount * MANY)


def test_units_stay_whole_and_at_most_the_amount_goes() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(bl.layers.Linear(7, 300), bl.layers.Linear(300, 5))
    norms = [layer.weight.mean().detach().abs().amax(1) for layer in bayes_layers(model).values()]
    ranked = torch.cat([norm.repeat_interleave(count) for norm, count in zip(norms, (7, 300), strict=True)])
    prune_(model, MAGNITUDE, amount=0.3, structure="output", allow_empty=True)
    cut = ranked.sort().values[math.floor(0.3 * len(ranked))]
    assert torch.equal(kept(model), ranked >= cut)
