"""The decay of the spike: that of the optimiser's own kind, at the value that was asked for, dense weights included."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim import CVAdam, SparsityTarget, SpikeAndSlab

LR, SLAB, SPIKE = 0.02, 0.05, 0.3
Make = Callable[..., torch.optim.Optimizer]
COUPLED: dict[str, Make] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "rmsprop": torch.optim.RMSprop,
    "ascending": lambda p, **options: torch.optim.SGD(p, maximize=True, **options),
}
DECOUPLED: dict[str, Make] = {
    "adamw": torch.optim.AdamW,
    "adam": lambda p, **options: torch.optim.Adam(p, decoupled_weight_decay=True, **options),
    "nadam": lambda p, **options: torch.optim.NAdam(p, decoupled_weight_decay=True, **options),
    "adafactor": torch.optim.Adafactor,
    "muon": torch.optim.Muon,
    "tensor-lr": lambda p, lr, **options: torch.optim.AdamW(
        p, lr=torch.tensor(lr, dtype=torch.float64), foreach=False, **options
    ),
}
ALL = COUPLED | {f"decoupled-{name}": make for name, make in DECOUPLED.items() if name != "adafactor"}
"""Without Adafactor, whose step follows the size of the weights as it is before its own decay."""


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False)).double()


def weights_of(model: nn.Module) -> list[Tensor]:
    return [parameter.detach() for parameter in model.parameters()]


def still(model: nn.Module) -> None:
    """A loss without slope."""
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)


def all_spike(model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any) -> SpikeAndSlab:
    options = {"spike_decay": SPIKE, "soft_threshold": 1e9, "hard_threshold": 0.0} | options
    pruner = SpikeAndSlab(model, optimizer, **options)
    pruner.update_()
    return pruner


@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
def test_in_the_spike_an_optimiser_moves_as_with_that_decay_of_its_own(make: Make) -> None:
    """Equal to rounding in float64; `test_decoupled_decay_...` says where a decoupled decay beside another one is."""
    model = network()
    twin = copy.deepcopy(model)
    optimizer = make(model.parameters(), lr=LR, weight_decay=0.0 if make in DECOUPLED.values() else SLAB)
    other = make(twin.parameters(), lr=LR, weight_decay=SPIKE)
    all_spike(model, optimizer)
    for seed in range(10):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed)).double()
        for net, own in ((model, optimizer), (twin, other)):
            own.zero_grad()
            (net(x) - x[:, :2]).square().mean().backward()
            own.step()
    for found, expected in zip(weights_of(model), weights_of(twin), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("make", DECOUPLED.values(), ids=DECOUPLED.keys())
def test_decoupled_decay_is_not_scaled_by_the_gradient(make: Make) -> None:
    """Fifty steps without a gradient; what is not in the spike keeps the optimiser's own decay."""
    model = network()
    optimizer = make(model.parameters(), lr=LR, weight_decay=SLAB)
    before = [weight.clone() for weight in weights_of(model)]
    all_spike(model, optimizer, where=lambda name, module: name == "0")
    for _ in range(50):
        still(model)
        optimizer.step()
    first, second = weights_of(model)
    own = 1 - LR * SLAB
    torch.testing.assert_close(first, before[0] * (own * (1 - LR * (SPIKE - SLAB))) ** 50)
    torch.testing.assert_close(second, before[1] * own**50)


def test_a_step_without_gradient_or_skipped_by_a_scaler_decays_nothing() -> None:
    model = network().float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=SLAB, fused=True)
    all_spike(model, optimizer)
    before = [weight.clone() for weight in weights_of(model)]
    optimizer.step()
    still(model)
    vars(optimizer).update(grad_scale=torch.tensor(8.0), found_inf=torch.tensor(1.0))
    optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(weights_of(model), before, strict=True))
    vars(optimizer).update(found_inf=torch.tensor(0.0))
    optimizer.step()
    for found, own in zip(weights_of(model), before, strict=True):
        torch.testing.assert_close(found, own * (1 - LR * (SPIKE - SLAB)) * (1 - LR * SLAB))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW], ids=["sgd", "adamw"])
def test_with_feedback_masked_weights_decay_in_the_copy(make: Make) -> None:
    model = network()
    optimizer = make(model.parameters(), lr=LR, weight_decay=0.0)
    target = SparsityTarget(0.5, by_epoch=1)
    pruner = all_spike(model, optimizer, feedback=True, warm_up=0, target=target)
    before = [weight.clone() for weight in weights_of(model)]
    pruner.after_epoch()
    still(model)
    optimizer.step()
    assert pruner.sparsity() >= 0.5
    for name, own in zip(("0", "2"), before, strict=True):
        dense = pruner.state_dict()["tensors"][f"dense.{name}"]
        torch.testing.assert_close(dense, own * (1 - LR * SPIKE))


def test_defaults_are_the_published_ones() -> None:
    """Those of example 1 of arXiv 2210.12957 and its code; the temperature is that of its regressions."""

    def defaults(function: Callable[..., Any]) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.items()
        return {name: p.default for name, p in parameters if p.default is not p.empty and name != "where"}

    settings = {"spike_decay": None, "soft_threshold": None, "hard_threshold": None, "warm_up": 50}
    when = {"every": 1, "feedback": False, "feedback_until": None, "target": None}
    assert defaults(SpikeAndSlab) == {"optimizer": None, "group": "input_unit"} | settings | when
    scales = {"temperature": "posterior", "beta1": 0.1, "beta2": 1.0, "eta": 0.1}
    assert defaults(CVAdam) == scales | {"weight_decay": 0.0, "seed": 0}


def test_most_kernels_of_a_fresh_cnn_are_spike_by_the_defaults_of_linear_layers() -> None:
    """Which is why convolutions have defaults of their own."""
    torch.manual_seed(0)
    model = bl.models.resnet18()
    for threshold, stated in ((1e-2, 0.999), (1e-4, 0.56)):
        pruner = SpikeAndSlab(model, group="kernel", soft_threshold=threshold, hard_threshold=0.0)
        pruner.update_()
        spike = torch.cat([t.flatten() for name, t in pruner.state_dict()["tensors"].items() if "spike" in name])
        # 1.4 million kernels, each in or out: five standard errors are 0.002; the figures have three digits at most.
        assert spike.double().mean().item() == pytest.approx(stated, abs=0.005)
