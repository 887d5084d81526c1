"""Sparsity targets: the ramp, the search, and that the asked sparsity is met in time."""

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim.groups import Group
from bayeslim.optim.sparsity_target import SparsityTarget, smallest_level
from bayeslim.optim.spike_slab import SpikeAndSlab


def test_the_ramp_is_cubic() -> None:
    target = SparsityTarget(0.8, by_epoch=100)
    assert [target.at(epoch, warm_up=10) for epoch in (0, 10, 55, 100, 300)] == pytest.approx([0, 0, 0.7, 0.8, 0.8])


def test_the_smallest_level_that_suffices() -> None:
    sizes = torch.tensor([0.0, 0.5, 1.0, 2.0])
    assert smallest_level(sizes, lambda level: level >= 0.7) == 1.0
    assert smallest_level(sizes, lambda level: True) == 0.0
    assert smallest_level(sizes, lambda level: False) == 2.0


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize(("group", "step"), [("weight", 1), ("input_unit", 30), ("output_unit", 40)])
def test_the_target_is_met_along_the_ramp(group: Group, step: int, feedback: bool) -> None:
    """Never less than asked, and past it by less than one group (a group of the largest layer has `step` weights)."""
    torch.manual_seed(0)
    model = bl.models.mlp([40, 30, 10, 2])
    total = 40 * 30 + 30 * 10 + 10 * 2
    target = SparsityTarget(0.85, by_epoch=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pruner = SpikeAndSlab(
        model, optimizer, group=group, hard_threshold=0.0, warm_up=2, feedback=feedback, target=target
    )
    x = torch.randn(64, 40)
    for epoch in range(1, 16):
        optimizer.zero_grad()
        (model(x) - x[:, :2]).square().mean().backward()
        optimizer.step()
        pruner.after_epoch()
        asked = target.at(epoch, 2) if epoch > 2 else 0.0
        assert asked - 1e-9 <= pruner.sparsity() <= asked + step / total
    assert sum(int((p == 0).sum()) for p in model.parameters() if p.ndim == 2) / total == pytest.approx(
        pruner.sparsity()
    )
    assert all(bool(mask.any()) for mask in pruner.masks().values())


def test_kernels_and_channels_meet_it_too() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=4), nn.ReLU(), nn.Conv2d(16, 8, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pruner = SpikeAndSlab(model, optimizer, group="kernel", warm_up=0, target=SparsityTarget(0.7, by_epoch=4))
    for _ in range(4):
        pruner.after_epoch()
    assert 0.7 <= pruner.sparsity() < 0.8
    assert all(bool(mask.any()) for mask in pruner.masks().values())


def test_the_hard_threshold_alone_may_suffice() -> None:
    torch.manual_seed(0)
    model = bl.models.mlp([10, 8, 1])
    first = model[0].weight
    assert isinstance(first, nn.Parameter)
    first.detach()[:, 2:] *= 1e-3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4, warm_up=0, target=SparsityTarget(0.3, by_epoch=2))
    pruner.after_epoch()
    assert pruner.sparsity() == pytest.approx(64 / 88)


def test_bad_targets() -> None:
    for sparsity in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="`sparsity` must lie in \\(0, 1\\), got"):
            SparsityTarget(sparsity, by_epoch=3)
    with pytest.raises(ValueError, match="`by_epoch` must be at least 1, got 0"):
        SparsityTarget(0.5, by_epoch=0)
    model = bl.models.mlp([4, 3, 1])
    with pytest.raises(ValueError, match="`target` must be reached after the warm-up of 5 epochs, got 5"):
        SpikeAndSlab(model, warm_up=5, target=SparsityTarget(0.5, by_epoch=5))
    with pytest.raises(ValueError, match="asks for a sparsity of 0.9, but one group of each layer stays, which allows"):
        SpikeAndSlab(model, warm_up=0, target=SparsityTarget(0.9, by_epoch=5))
