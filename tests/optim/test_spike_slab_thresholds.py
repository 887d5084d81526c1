"""One unit for the thresholds of all layers, defaults for two kinds of networks, and states of the time before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import CVAdam
from bayeslim.optim.groups import Group
from bayeslim.optim.spike_slab import SpikeAndSlab


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def judged(model: nn.Module, **options: Any) -> SpikeAndSlab:
    """After one EM step."""
    pruner = SpikeAndSlab(model, torch.optim.SGD(model.parameters(), lr=0.1), warm_up=0, **options)
    pruner.after_epoch()
    return pruner


@pytest.mark.parametrize("group", ["kernel", "input_unit"])
@pytest.mark.parametrize("network", [bl.models.lenet5_caffe, bl.models.resnet18])
def test_a_fresh_network_keeps_its_layers_by_the_documented_settings(network: Any, group: Group) -> None:
    documented = {"spike_decay": 1e-3, "soft_threshold": 1e-4, "hard_threshold": 1e-4}
    torch.manual_seed(0)
    model = network()
    pruner = judged(model, group=group)
    assert {name: getattr(pruner, name) for name in documented} == documented
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            assert (module.weight != 0).double().mean() >= 0.5, name


def test_linear_layers_and_convolutions_are_judged_by_one_unit() -> None:
    """A convolution of one place is a linear layer, and a weight its own mean square."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(6, 5, 1), nn.Flatten(), nn.Linear(6, 5))
    weight = torch.rand(5, 6) * 0.2
    with torch.no_grad():
        for parameter in [parameter for parameter in model.parameters() if parameter.ndim > 1]:
            parameter.copy_(weight.view_as(parameter))
    pruner = judged(model, group="weight", soft_threshold=1e-2, hard_threshold=1e-2)
    for mask in pruner.masks().values():
        assert torch.equal(mask.view(5, 6).bool(), weight.square() >= 1e-2)
    assert 0.3 < pruner.sparsity() < 0.7


def test_a_channel_is_judged_by_its_range_squared() -> None:
    """Next to one that is as wide but elsewhere, and that its magnitude keeps."""
    model = nn.Sequential(nn.Conv2d(3, 2, (1, 2), bias=False))
    channels = torch.tensor([[-0.004, 0.005], [0.101, 0.110], [-0.006, 0.005]])
    with torch.no_grad():
        next(model.parameters()).copy_(channels[None, :, None].expand(2, 3, 1, 2))
    mask = judged(model, soft_threshold=1e-2, hard_threshold=1e-4).masks()["0"]
    assert mask[:, :, 0, 0].tolist() == [[0, 1, 1], [0, 1, 1]]


def test_kernels_leave_linear_layers_alone() -> None:
    model = cnn()
    pruner = judged(model, group="kernel", soft_threshold=1.0, hard_threshold=1.0)
    assert pruner.masks().keys() == {"0"} and pruner.sparsity() > 0.5
    assert not (model.state_dict()["4.weight"] == 0).any()
    with pytest.raises(ValueError, match="no plain convolution, which alone has kernels"):
        SpikeAndSlab(bl.models.mlp([4, 3, 2]), group="kernel")


def test_defaults_follow_what_is_pruned() -> None:
    def settings(pruner: SpikeAndSlab) -> tuple[float, float, float]:
        return pruner.spike_decay, pruner.soft_threshold, pruner.hard_threshold

    for group in ("weight", "kernel", "input_unit", "output_unit"):
        assert settings(SpikeAndSlab(cnn(), group=group)) == (1e-3, 1e-4, 1e-4)
    assert settings(SpikeAndSlab(cnn(), soft_threshold=0.5, hard_threshold=0.0)) == (1e-3, 0.5, 0.0)
    alone = SpikeAndSlab(cnn(), where=lambda name, module: isinstance(module, nn.Linear))
    assert settings(alone) == settings(SpikeAndSlab(bl.models.mlp([4, 3, 2]))) == (1e-2, 1e-2, 1e-3)


def test_a_range_for_a_hard_threshold_is_refused() -> None:
    """The settings that were documented for CNNs once, which would now take a range of 0.1."""
    for group in ("kernel", "weight"):
        with pytest.raises(ValueError, match="`hard_threshold`=0.01 must not exceed .* pass 1e-4 for a range of 0.01"):
            SpikeAndSlab(cnn(), group=group, soft_threshold=1e-4, hard_threshold=1e-2)
    assert SpikeAndSlab(cnn(), soft_threshold=0.0, hard_threshold=1e-2).hard_threshold == 1e-2
    assert SpikeAndSlab(bl.models.mlp([4, 3, 2]), hard_threshold=1.0).hard_threshold == 1.0


EXPLICIT: dict[str, Any] = {"spike_decay": 1e-3, "soft_threshold": 1e-4, "hard_threshold": 0.0}


@pytest.mark.parametrize(
    ("network", "options"),
    [(cnn, {"group": "weight"} | EXPLICIT), (lambda: bl.models.mlp([4, 3, 2]), {"group": "input_unit"})],
    ids=["experiments", "linear"],
)
def test_older_states_go_on_where_they_mean_what_they_did(network: Any, options: dict[str, Any]) -> None:
    """Old ones carried no version, also through the state of an optimiser."""
    model, other = network(), network()
    optimizer, second = (CVAdam(net.parameters(), num_data=10, lr=0.1) for net in (model, other))
    pruner, resumed = SpikeAndSlab(model, optimizer, **options), SpikeAndSlab(other, second, **options)
    pruner.update_()
    pruner.after_epoch()
    state = optimizer.state_dict()
    for entry in state["state"].values():
        entry.pop("spike_and_slab.version", None)
    second.load_state_dict(state)
    assert resumed.epoch == 1 and resumed.state_dict()["version"] == 2
    expected = pruner.state_dict()["tensors"]
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.state_dict()["tensors"].items())


@pytest.mark.parametrize(
    "options",
    [
        EXPLICIT | {"hard_threshold": 1e-5, "group": "weight"},
        {"hard_threshold": 0.0, "group": "weight"},
        EXPLICIT | {"group": "kernel"},
    ],
    ids=["range", "other defaults", "linear layers"],
)
def test_older_states_that_meant_something_else_are_refused(options: dict[str, Any]) -> None:
    pruner = SpikeAndSlab(cnn(), **options)
    state = pruner.state_dict()
    pruner.load_state_dict(state)
    del state["version"]
    if options["group"] == "kernel":
        state["tensors"] |= {"spike.4": torch.zeros(1, 4, 8), "kept.4": torch.ones(4, 8)}
    with pytest.raises(ValueError, match="`state` is of an older version, .*: finish the run with that version"):
        pruner.load_state_dict(state)
