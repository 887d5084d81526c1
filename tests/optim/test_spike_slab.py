"""Spike-and-slab pruning beside an optimiser: masks, decay, freezing, feedback, resuming and compaction."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim.cv_adam import CVAdam
from bayeslim.optim.langevin import SGHMC
from bayeslim.optim.sparsity_target import SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.pruning.prune import bayes_layers, set_masks_

Make = Callable[[Any], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-4),
    "cv-adam": lambda p: CVAdam(p, num_data=50, lr=0.05, temperature=0.05, weight_decay=1e-4),
    "sghmc": lambda p: SGHMC(p, num_data=50, lr=0.01, weight_decay=1e-4),
}


def small_inputs() -> nn.Sequential:
    """A network whose first and third of four inputs have small weights."""
    torch.manual_seed(0)
    model = bl.models.mlp([4, 6, 2])
    weight_of(model)[:, [0, 2]] *= 1e-3
    return model


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    (model(x) - x[:, :2]).square().mean().backward()
    optimizer.step()


def parameter_of(model: nn.Sequential, number: int = 0) -> nn.Parameter:
    weight = model[number].weight
    assert isinstance(weight, nn.Parameter)
    return weight


def weight_of(model: nn.Sequential, number: int = 0) -> Tensor:
    """Shares memory with the parameter."""
    return parameter_of(model, number).detach()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pruned_weights_are_frozen_at_zero(name: str) -> None:
    """Whatever gradient, momentum or noise an optimiser adds."""
    model = small_inputs()
    optimizer = OPTIMIZERS[name](model.parameters())
    pruner = SpikeAndSlab(model, optimizer, warm_up=0, hard_threshold=1e-4)
    for seed in range(3):  # momenta build up first
        train_step(model, optimizer, seed)
    weight_of(model)[:, [0, 2]] = 1e-3
    pruner.update_()
    before = weight_of(model)[:, 1].clone()
    for seed in range(20):
        train_step(model, optimizer, seed)
        assert not weight_of(model)[:, [0, 2]].any()
    assert (weight_of(model)[:, 1] != before).all()
    for value in optimizer.state[parameter_of(model)].values():
        if isinstance(value, Tensor) and value.shape == (6, 4) and not (value[:, [0, 2]] != 0).all():
            assert not value[:, [0, 2]].any()  # what moves weights is stopped; scales like tau go on
    assert pruner.sparsity() == pytest.approx(12 / 36)
    masks = pruner.masks()
    assert masks["0"].tolist() == [[0, 1, 0, 1]] * 6 and bool(masks["2"].all())


def test_momenta_are_stopped() -> None:
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4)
    train_step(model, optimizer)
    weight_of(model)[:, [0, 2]] = 1e-3
    assert optimizer.state[parameter_of(model)]["momentum_buffer"].all()
    pruner.update_()
    momentum = optimizer.state[parameter_of(model)]["momentum_buffer"]
    assert not momentum[:, [0, 2]].any() and momentum[:, [1, 3]].all()


def test_the_spike_decays_more() -> None:
    """`w <- w - lr (g + spike_decay w)` in the spike and `w - lr (g + decay w)` in the slab, and it is reversible."""
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    pruner = SpikeAndSlab(model, optimizer, spike_decay=0.3, soft_threshold=1e-4, hard_threshold=0.0)

    def check(decays: list[float]) -> None:
        x = torch.randn(8, 4)
        before = weight_of(model).clone()
        (gradient,) = torch.autograd.grad(model(x).square().mean(), [parameter_of(model)])
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        expected = before - 0.1 * (gradient + torch.tensor(decays) * before)
        torch.testing.assert_close(weight_of(model), expected)

    check([0.01] * 4)  # before the first EM step all is slab
    pruner.update_()
    check([0.3, 0.01, 0.3, 0.01])
    assert pruner.sparsity() == 0
    weight_of(model)[:, 0] = 1.0
    weight_of(model)[:, 1] = 1e-3
    pruner.update_()
    check([0.01, 0.3, 0.3, 0.01])


def test_the_spike_of_scaled_gradients() -> None:
    """A GradScaler leaves it to fused optimisers to divide the gradient; the decay must be scaled like it."""
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    pruner = SpikeAndSlab(model, optimizer, spike_decay=0.3, soft_threshold=1e9, hard_threshold=0.0)
    pruner.update_()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = weight_of(model).clone()
    vars(optimizer).update(grad_scale=torch.tensor(8.0), found_inf=torch.tensor(0.0))
    optimizer.step()
    torch.testing.assert_close(weight_of(model), before * (1 - 0.1 * 0.3))


def test_without_feedback_the_mask_only_grows() -> None:
    model = small_inputs()
    optimizer = CVAdam(model.parameters(), num_data=50, lr=0.05, temperature=1.0)
    pruner = SpikeAndSlab(model, optimizer, group="weight", hard_threshold=3e-3, warm_up=0)
    before = pruner.masks()
    pruned: list[float] = []
    for seed in range(30):
        train_step(model, optimizer, seed)
        pruner.after_epoch()
        now = pruner.masks()
        assert all(bool((now[name] <= before[name]).all()) for name in now)
        assert all(bool(((weight_of(model, int(name)) != 0) <= now[name].bool()).all()) for name in now)
        before = now
        pruned.append(pruner.sparsity())
    assert pruned[0] < pruned[-1] < 1


def test_with_feedback_weights_come_back() -> None:
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4, feedback=True, spike_decay=0.0)
    pruner.update_()
    assert pruner.masks()["0"][0].tolist() == [0, 1, 0, 1]
    for seed in range(40):  # the target needs inputs 0 and 1
        train_step(model, optimizer, seed)
        assert not weight_of(model)[:, [0, 2]].any()  # masked until the next EM step
    dense = pruner.state_dict()["tensors"]["dense.0"]
    assert (dense.square().mean(0) > 1e-4).all()  # both want to come back, the largest does
    best = 0 if dense[:, 0].square().mean() > dense[:, 2].square().mean() else 2
    pruner.update_()
    assert pruner.masks()["0"].any(0).nonzero()[:, 0].tolist() == sorted([1, 3, best])
    assert torch.equal(weight_of(model)[:, best], dense[:, best])
    after = pruner.state_dict()["tensors"]["dense.0"]
    assert not after[:, 2 - best].any()  # the other one starts from zero again


def test_feedback_ends() -> None:
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    pruner = SpikeAndSlab(
        model, optimizer, hard_threshold=1e-4, feedback=True, feedback_until=2, spike_decay=0.0, warm_up=0
    )
    back: list[bool] = []
    for epoch in range(4):
        if epoch in (0, 2):  # pruned in the first and in the third epoch
            weight_of(model)[:, 0] = 0
        else:
            for seed in range(40):
                train_step(model, optimizer, seed)
        pruner.after_epoch()
        back.append(bool(pruner.masks()["0"][:, 0].any()))
    assert back == [False, True, False, False]


def test_feedback_takes_gradients_at_masked_weights_and_moves_dense_ones() -> None:
    model = small_inputs()
    dense = weight_of(model) * torch.tensor([0.0, 1.0, 0.0, 1.0])  # pruned weights start from zero
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.05)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4, soft_threshold=0.0, spike_decay=0.05, feedback=True)
    pruner.update_()
    for seed in range(5):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
        masked = dense * torch.tensor([0.0, 1.0, 0.0, 1.0])
        torch.testing.assert_close(weight_of(model), masked)
        loss = (model(x) - x[:, :2]).square().mean()
        (gradient,) = torch.autograd.grad(loss, [parameter_of(model)])
        train_step(model, optimizer, seed)
        dense = dense - 0.1 * (gradient + 0.05 * dense)
        torch.testing.assert_close(pruner.state_dict()["tensors"]["dense.0"], dense)
    assert dense[:, 0].all()


def test_what_goes_for_the_target_keeps_its_value_in_the_copy() -> None:
    model = small_inputs()
    before = {number: weight_of(model, number).clone() for number in (0, 2)}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target = SparsityTarget(0.5, by_epoch=1)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4, warm_up=0, feedback=True, target=target)
    pruner.after_epoch()
    assert pruner.sparsity() >= 0.5
    for number, small in ((0, [0, 2]), (2, [])):
        dense = pruner.state_dict()["tensors"][f"dense.{number}"]
        expected = before[number].clone()
        expected[:, small] = 0
        assert torch.equal(dense, expected)
    pruned = sum(int((weight_of(model, n) == 0).any(0).sum()) for n in (0, 2))
    assert pruned > 2


def test_nothing_happens_in_the_warm_up_and_between_steps() -> None:
    model = small_inputs()
    pruner = SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), warm_up=3, every=4, hard_threshold=1e-4)
    steps: list[int] = []
    pruner.update_ = lambda: steps.append(pruner.epoch)
    for _ in range(13):
        pruner.after_epoch()
    assert steps == [4, 8, 12]


def test_no_layer_is_emptied() -> None:
    """The largest group stays, here an input unit of each layer."""
    model = small_inputs()
    largest = [int(weight_of(model, n).square().mean(0).argmax()) for n in (0, 2)]
    pruner = SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), hard_threshold=1e6)
    pruner.update_()
    assert [weight_of(model, n).any(0).nonzero()[:, 0].tolist() for n in (0, 2)] == [[largest[0]], [largest[1]]]


def test_weights_that_are_not_finite_do_not_look_pruned() -> None:
    model = small_inputs()
    pruner = SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), hard_threshold=1e-4)
    weight_of(model)[0, 0] = torch.nan
    pruner.update_()
    assert pruner.masks()["0"][0].tolist() == [1, 1, 0, 1]


def test_kernels_are_soft_and_channels_hard() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    weight_of(model)[:, 1] *= 1e-3  # an input channel
    weight_of(model)[2] *= 1e-3  # an output channel
    weight_of(model)[0, 0] *= 1e-3  # one kernel
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = SpikeAndSlab(model, optimizer, group="kernel", soft_threshold=1e-4, hard_threshold=1e-4)
    pruner.update_()
    spike = pruner.state_dict()["tensors"]["spike.0"][0, :, :, 0, 0]
    expected = torch.zeros(4, 3, dtype=torch.bool)
    expected[:, 1] = expected[2] = expected[0, 0] = True
    assert torch.equal(spike, expected)
    kept = torch.ones(4, 3)
    kept[:, 1] = kept[2] = 0
    assert torch.equal(pruner.masks()["0"][:, :, 0, 0], kept)
    assert bool(parameter_of(model)[0, 0].any())


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", ["sgd", "cv-adam"])
def test_resuming_is_exact(name: str, feedback: bool) -> None:
    def begin() -> tuple[nn.Sequential, torch.optim.Optimizer, SpikeAndSlab]:
        model = small_inputs()
        optimizer = OPTIMIZERS[name](model.parameters())
        return model, optimizer, SpikeAndSlab(model, optimizer, warm_up=2, hard_threshold=1e-2, feedback=feedback)

    def run(model: nn.Module, optimizer: torch.optim.Optimizer, pruner: SpikeAndSlab, epochs: range) -> None:
        for epoch in epochs:
            for step in range(3):
                train_step(model, optimizer, 3 * epoch + step)
            pruner.after_epoch()

    whole = begin()
    run(*whole, range(8))
    first = begin()
    run(*first, range(5))
    states = copy.deepcopy([part.state_dict() for part in first])
    second = begin()
    for part, state in zip(second, states, strict=True):
        part.load_state_dict(state)
    run(*second, range(5, 8))
    for one, other in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(one, other)
    assert 0 < whole[2].sparsity() == second[2].sparsity()
    assert whole[2].epoch == second[2].epoch == 8


def test_a_state_of_another_network_is_refused() -> None:
    model = small_inputs()
    pruner = SpikeAndSlab(model)
    for other in (SpikeAndSlab(model, feedback=True), SpikeAndSlab(model, group="weight")):
        with pytest.raises(ValueError, match="`state` is of another network, `group` or `feedback`: '.*' does not fit"):
            pruner.load_state_dict(other.state_dict())


class Broken(torch.optim.SGD):
    """Fails in the middle of a step."""

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.add_(1.0)
                    raise RuntimeError("out of luck")


@pytest.mark.parametrize("feedback", [False, True])
def test_a_failing_step_leaves_masked_weights(feedback: bool) -> None:
    model = small_inputs()
    optimizer = Broken(model.parameters(), lr=0.1)
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4, feedback=feedback)
    pruner.update_()
    before = weight_of(model).clone()
    with pytest.raises(RuntimeError, match="out of luck"):
        train_step(model, optimizer)
    assert not weight_of(model)[:, [0, 2]].any()
    if feedback:
        assert torch.equal(weight_of(model), before)


def test_schedulers_and_parameters_without_gradient() -> None:
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = SpikeAndSlab(model, None, hard_threshold=1e-4)
    assert pruner.attach(optimizer) is optimizer
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    pruner.update_()
    before = weight_of(model).clone()
    optimizer.zero_grad()
    optimizer.step()  # no gradients at all
    scheduler.step()
    assert torch.equal(weight_of(model), before)
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_masks_move_on_to_bayesian_layers() -> None:
    model = small_inputs()
    pruner = SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), hard_threshold=1e-4)
    pruner.update_()
    masks = pruner.masks()
    bl.bayesianize_(model)
    assert set_masks_(bayes_layers(model), masks) == pytest.approx({"0": 0.5, "2": 0.0})
    assert bl.sparsity(model) == pytest.approx(12 / 36)


@pytest.mark.parametrize("feedback", [False, True])
def test_a_pruned_perceptron_becomes_smaller(feedback: bool) -> None:
    torch.manual_seed(0)
    model = bl.models.mlp([60, 40, 30, 3])
    weight_of(model)[:, 4:] *= 1e-3
    weight_of(model, 2)[:, 7:] *= 1e-3
    weight_of(model, 4)[:, 5:] *= 1e-3
    pruner = SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), hard_threshold=1e-4, feedback=feedback)
    pruner.update_()
    x = torch.randn(50, 60)
    small = bl.compact(model, x[:2])
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-6)
    shapes = [tuple(m.weight.shape) for m in small.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(7, 4), (5, 7), (3, 5)]


def test_a_pruned_convolutional_network_becomes_smaller() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 6, 3, groups=2),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    ).eval()
    weight_of(model, 5)[:, 3:] *= 1e-3  # the inputs of one convolution group are never used
    weight_of(model, 5)[2] *= 1e-3
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = SpikeAndSlab(model, optimizer, group="kernel")
    pruner.update_()
    assert pruner.masks().keys() == {"0", "3", "5"}
    x = torch.randn(5, 3, 9, 9)
    small = bl.compact(model, x)
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-6)
    shapes = [tuple(m.weight.shape) for m in small.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert shapes == [(4, 3, 3, 3), (3, 4, 3, 3), (3, 3, 3, 3), (2, 3)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"group": "row"}, "`group` must be one of"),
        ({"spike_decay": -1.0}, "`spike_decay` must be finite and not negative, got -1.0"),
        ({"soft_threshold": float("nan")}, "`soft_threshold` must be finite"),
        ({"hard_threshold": float("inf")}, "`hard_threshold` must be finite"),
        ({"warm_up": -1}, "`warm_up` must be at least 0 and `every` at least 1, got -1 and 1"),
        ({"every": 0}, "`warm_up` must be at least 0 and `every` at least 1, got 50 and 0"),
        ({"spike_decay": 1e-5}, "`spike_decay`=1e-05 must exceed the optimiser's weight_decay, which is 0.0001"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    model = small_inputs()
    with pytest.raises(ValueError, match=message):
        SpikeAndSlab(model, OPTIMIZERS["sgd"](model.parameters()), **arguments)


def test_closures_are_refused() -> None:
    """They would find the dense weights, and a gradient without the decay of the spike."""
    model = small_inputs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SpikeAndSlab(model, optimizer)
    with pytest.raises(TypeError, match="takes no closure: compute the gradients before it"):
        optimizer.step(lambda: 0.0)


def test_bad_optimizers() -> None:
    model = small_inputs()
    with pytest.raises(ValueError, match="`optimizer` does not hold the weight of layer '2'"):
        SpikeAndSlab(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruner = SpikeAndSlab(model, optimizer)
    with pytest.raises(ValueError, match="an optimiser is attached already"):
        pruner.attach(optimizer)


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("name", ["adam", "cv-adam"])
def test_fit_prunes_and_resumes_exactly(name: str, feedback: bool, tmp_path: Path) -> None:
    """The masks travel in the optimiser's part of the checkpoint."""
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))

    def run(epochs: int, checkpoint: Path | None) -> tuple[nn.Sequential, SpikeAndSlab]:
        model = small_inputs()
        pruner = SpikeAndSlab(model, warm_up=2, hard_threshold=1e-2, soft_threshold=0.05, feedback=feedback)
        bl.fit(
            model,
            (x, x[:, :2]),
            likelihood=bl.likelihoods.Gaussian(),
            epochs=epochs,
            batch_size=16,
            optimizer=lambda groups: pruner.attach(OPTIMIZERS[name](groups)),
            after_epoch=pruner.after_epoch,
            checkpoint=checkpoint,
            resume=True,
            seed=0,
            progress=False,
        )
        return model, pruner

    run(4, tmp_path)
    resumed, second = run(7, tmp_path)
    whole, first = run(7, None)
    assert first.epoch == second.epoch == 7 and 0 < first.sparsity() < 1
    states = first.state_dict()["tensors"], second.state_dict()["tensors"]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_optimiser_carries_the_masks_before_its_first_step() -> None:
    """Adam takes any state for a complete one: that of the masks must not stay there."""
    model = small_inputs()
    optimizer = torch.optim.Adam(model.parameters())
    pruner = SpikeAndSlab(model, optimizer, hard_threshold=1e-4)
    pruner.update_()
    state = optimizer.state_dict()
    other = small_inputs()
    second = torch.optim.Adam(other.parameters())
    restored = SpikeAndSlab(other, second, hard_threshold=1e-4)
    second.load_state_dict(state)
    assert restored.sparsity() == pruner.sparsity() > 0
    assert not weight_of(other)[:, [0, 2]].any()
    train_step(other, second)
    assert set(second.state[parameter_of(other)]) == {"step", "exp_avg", "exp_avg_sq"}


def test_exact_zeros_of_plain_layers_are_compacted() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.ConvTranspose2d(2, 6, 3), nn.ReLU(), nn.ConvTranspose2d(6, 4, 2, groups=2), nn.ReLU(), nn.Conv2d(4, 3, 3)
    )
    weight_of(model, 4)[:, 2:] = 0  # nobody reads the second group
    x = torch.randn(2, 2, 5, 5)
    small = bl.compact(model, x)
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-6)
    shapes = [tuple(p.shape) for p in small.parameters() if p.ndim == 4]
    assert shapes == [(2, 3, 3, 3), (3, 2, 2, 2), (3, 2, 3, 3)]


def test_a_kernel_that_sums_to_zero_is_not_pruned() -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.ReLU(), nn.Conv1d(2, 1, 2, bias=False))
    weight_of(model, 2)[:] = torch.tensor([[[1.0, -1.0], [0.0, 0.0]]])
    x = torch.randn(4, 1, 6)
    small = bl.compact(model, x)
    torch.testing.assert_close(small(x), model(x))
    assert [tuple(p.shape) for p in small.parameters() if p.ndim == 3] == [(1, 1, 1), (1, 1, 2)]
