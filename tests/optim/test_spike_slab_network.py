"""Spike-and-slab pruning of a network that others change: loaded weights, other types, early stopping."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.optim.sparsity_target import SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab, pruner_of

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return bl.models.mlp([4, 6, 2])


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x = X.to(next(model.parameters()))
    optimizer.zero_grad()
    (model(x) - x[:, :2]).square().mean().backward()
    optimizer.step()


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if name.endswith("weight")}


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("attached", ["before", "after"])
def test_weights_that_are_loaded_later_are_trained(attached: str, feedback: bool) -> None:
    """A first step from loaded weights is the plain optimiser's, whenever the optimiser was attached."""
    trained, plain, model = network(1), network(1), network(0)
    optimizer = sgd(model.parameters())
    pruner = SpikeAndSlab(model, optimizer if attached == "before" else None, feedback=feedback)
    model.load_state_dict(trained.state_dict())
    if attached == "after":
        pruner.attach(optimizer)
    step(model, optimizer)
    step(plain, sgd(plain.parameters()))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


def test_a_checkpoint_before_the_first_step_holds_loaded_weights() -> None:
    model = network(0)
    optimizer = sgd(model.parameters())
    pruner = SpikeAndSlab(model, optimizer, feedback=True)
    model.load_state_dict(network(1).state_dict())
    tensors = pruner.state_dict()["tensors"]
    assert all(torch.equal(tensors[f"dense.{n}"], weights(model)[f"{n}.weight"]) for n in ("0", "2"))


def test_the_copy_has_the_type_of_the_network() -> None:
    model, plain = network(0), network(0).double()
    pruner = SpikeAndSlab(model, feedback=True)
    model.double()
    optimizer = pruner.attach(sgd(model.parameters()))
    step(model, optimizer)
    step(plain, sgd(plain.parameters()))
    assert all(t.dtype == torch.float64 for n, t in pruner.state_dict()["tensors"].items() if n.startswith("dense."))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=1e-14, atol=0)


@pytest.mark.parametrize("first", ["network", "pruner"])
def test_a_stored_copy_wins_over_masked_weights(first: str) -> None:
    """What is masked in the network is known to the copy alone, also if that is loaded before `attach`."""
    model = network(0)
    optimizer = sgd(model.parameters())
    pruner = SpikeAndSlab(model, optimizer, feedback=True, group="weight", warm_up=0, target=SparsityTarget(0.5, 1))
    step(model, optimizer)
    pruner.after_epoch()
    step(model, optimizer)
    states = copy.deepcopy((model.state_dict(), pruner.state_dict()))
    other = network(3)
    second = SpikeAndSlab(other, feedback=True, group="weight", warm_up=0, target=SparsityTarget(0.5, 1))
    for part in ("network", "pruner") if first == "network" else ("pruner", "network"):
        if part == "network":
            other.load_state_dict(states[0])
        else:
            second.load_state_dict(states[1])
    again = second.attach(sgd(other.parameters()))
    for name, value in states[1]["tensors"].items():
        assert torch.equal(second.state_dict()["tensors"][name], value), name
    step(model, optimizer)
    step(other, again)
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in model.state_dict().items())


def test_pruning_without_an_optimiser_is_refused() -> None:
    pruner = SpikeAndSlab(network(0), warm_up=0, hard_threshold=1.0)
    with pytest.raises(RuntimeError, match="no optimiser is attached.*call pruner.attach"):
        pruner.after_epoch()
    assert pruner.epoch == 0 and pruner.sparsity() == 0


def test_an_optimiser_knows_its_pruner() -> None:
    model = network(0)
    optimizer = sgd(model.parameters())
    assert pruner_of(optimizer) is None
    pruner = SpikeAndSlab(model, optimizer)
    assert pruner_of(optimizer) is pruner
    seen = weakref.ref(optimizer)
    del pruner, optimizer
    gc.collect()
    assert seen() is None


def test_masks_hold_in_steps_that_are_compiled_with_adam() -> None:
    model = network(0)
    pruner = SpikeAndSlab(model, group="weight", warm_up=0, hard_threshold=0.02, soft_threshold=0.05)
    sparsities: list[float] = []

    def hook(*now: Any) -> None:
        sparsities.append(zeros(model))  # that of the epoch before, after this one's steps
        pruner.after_epoch(*now)

    bl.fit(
        model,
        (X, X[:, :2]),
        likelihood=bl.likelihoods.Gaussian(0.3),
        epochs=2,
        compile=True,
        optimizer=lambda groups: pruner.attach(torch.optim.Adam(groups, 1e-2)),
        after_epoch=hook,
    )
    assert sparsities[0] == 0 and sparsities[1] > 0.1


def zeros(model: nn.Module) -> float:
    found = torch.cat([value.flatten() for value in weights(model).values()])
    return (found == 0).double().mean().item()


@pytest.mark.parametrize("feedback", [False, True])
def test_early_stopping_goes_back_to_no_network_before_the_target(feedback: bool) -> None:
    model, y = network(0), X[:, :2] + 0.3 * torch.randn(64, 2, generator=torch.Generator().manual_seed(2))
    pruner = SpikeAndSlab(model, group="weight", warm_up=1, feedback=feedback, target=SparsityTarget(0.8, by_epoch=8))
    sparsities: list[float] = []

    def hook(*now: Any) -> None:
        pruner.after_epoch(*now)
        sparsities.append(pruner.sparsity())

    history = bl.fit(
        model,
        (X, y),
        likelihood=bl.likelihoods.Gaussian(0.3),
        epochs=40,
        batch_size=16,
        optimizer=lambda groups: pruner.attach(torch.optim.Adam(groups, lr=0.05)),
        after_epoch=hook,
        validation=(X + 0.1, y),
        patience=3,
        seed=0,
        progress=False,
    )
    scores = history["validation_nll"]
    counts = [epoch for epoch, sparsity in enumerate(sparsities) if sparsity >= 0.8]
    best = min(counts, key=scores.__getitem__)
    assert scores[best] > min(scores) and len(scores) == best + 1 + 3 < 40  # the best of all came before the target
    assert zeros(model) == pytest.approx(pruner.sparsity()) and pruner.sparsity() == sparsities[best]
    assert bl.evaluate(model, (X + 0.1, y), samples=0)["nll"] == pytest.approx(scores[best], rel=1e-5)


def test_without_a_target_the_masks_are_those_of_the_best_epoch() -> None:
    """Here every epoch prunes more, so that an early one is the best."""
    model = network(0)
    pruner = SpikeAndSlab(model, group="weight", warm_up=0, hard_threshold=0.02)
    sparsities: list[float] = []

    def hook(network: nn.Module, *_: object) -> None:
        pruner.hard_threshold = 0.02 * (1 + len(sparsities)) ** 2
        pruner.after_epoch()
        sparsities.append(pruner.sparsity())

    history = bl.fit(
        model,
        (X, X[:, :2]),
        likelihood=bl.likelihoods.Gaussian(),
        epochs=20,
        optimizer=lambda groups: pruner.attach(torch.optim.SGD(groups, lr=1e-3)),
        after_epoch=hook,
        validation=(X, X[:, :2]),
        patience=2,
        seed=0,
        progress=False,
    )
    best = int(np.argmin(history["validation_nll"]))
    assert 0 < sparsities[best] < sparsities[-1]
    assert pruner.sparsity() == sparsities[best] == pytest.approx(zeros(model))
