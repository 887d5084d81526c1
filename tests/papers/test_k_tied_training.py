"""How the k-tied experiment trains: checkpoints, seeds, precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.runtime.seeds import derived_seed
from bayeslim.schedules import constant, staircase
from bayeslim_papers import training
from bayeslim_papers.k_tied.part import made_images
from bayeslim_papers.k_tied.training import ForTensorCores, train

DATA = made_images((8,), 3, (50, 10, 10), "cpu").train
OPTIONS: dict[str, Any] = {"epochs": 4, "batch_size": 16, "lr": 0.01, "likelihood": bl.Categorical()}
STEPS = 4 * 4


def network() -> nn.Module:
    torch.manual_seed(0)
    return bl.mlp([8, 6, 3], method="graves")


def trained(**options: Any) -> list[Tensor]:
    """The parameters of a trained network."""
    model = network()
    chosen: dict[str, Any] = OPTIONS | {"seed": 0, "annealing": constant()} | options
    train(model, DATA, **chosen)
    return [parameter.detach().clone() for parameter in model.parameters()]


class Interruption(Exception):
    """What stops a training here."""


def test_the_facts() -> None:
    facts = train(network(), DATA, seed=0, annealing=staircase(0.005, every=5), **OPTIONS)
    assert facts["steps"] == STEPS and facts["networks_at_once"] == 1 and facts["precision"] == "float32"
    assert facts["kl_weight"] == pytest.approx(0.005 * 15)  # the last step is number 15
    assert facts["step_milliseconds"] > 0


def test_an_interrupted_training_ends_as_one_that_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    whole = trained()
    count = 0

    def stop() -> None:
        nonlocal count
        count += 1
        if count == 10:  # in the third epoch
            raise Interruption

    with pytest.raises(Interruption):
        trained(folder=tmp_path, after_step=stop)
    said: list[str] = []
    resumed = trained(folder=tmp_path, say=said.append)
    assert said[0] == "going on after epoch 2"
    for one, other in zip(whole, resumed, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    trained(folder=tmp_path, settings={"prior_std": 0.2})
    with pytest.raises(ValueError, match=r"prior_std=0\.2, now 0\.3"):
        trained(folder=tmp_path, settings={"prior_std": 0.3})
    with pytest.raises(ValueError, match="seed=0, now 1"):
        trained(folder=tmp_path, seed=1)


def test_a_seed_has_its_own_order_of_the_data() -> None:
    """Plain Adam in this order ends where the training without noise does; another seed ends elsewhere."""
    model, expected = network(), network()
    for layer in (*model.modules(), *expected.modules()):
        if isinstance(layer, bl.layers.BayesLayer):
            layer.estimator = bl.mean_only
    train(model, DATA, seed=3, annealing=constant(), **OPTIONS)
    (x, y), optimizer = DATA, torch.optim.Adam(expected.parameters(), 0.01)
    for epoch in range(4):
        order = torch.randperm(50, generator=torch.Generator().manual_seed(derived_seed(3, epoch)))
        for rows in order.split(16):
            optimizer.zero_grad()
            bl.nelbo(expected, x[rows], y[rows], likelihood=bl.Categorical(), num_data=50).loss.backward()
            optimizer.step()
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    first, second = (trained(seed=seed)[0] for seed in (3, 4))
    assert not torch.allclose(first, second)


def test_training_leaves_the_random_state_alone() -> None:
    model = network()
    state = torch.random.get_rng_state()
    train(model, DATA, seed=0, annealing=constant(), **OPTIONS)
    assert torch.equal(state, torch.random.get_rng_state())


def test_a_network_that_diverges_is_named() -> None:
    with pytest.raises(FloatingPointError, match="no longer finite after epoch 0: choose a smaller `lr`"):
        trained(lr=1e38)


def test_unknown_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match="`precision` must be one of float32, bfloat16, got 'half'"):
        trained(precision="half")


def test_tensor_cores_get_channels_last_and_answer_in_float32() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    x = torch.randn(2, 3, 8, 8)
    seen: list[Tensor] = []

    def look(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen.extend((*inputs, output))

    model[0].register_forward_hook(look)
    found = ForTensorCores(model, autocast=True)(x)
    assert found.dtype == torch.float32
    assert seen[0].is_contiguous(memory_format=torch.channels_last) and seen[1].dtype == torch.bfloat16
    torch.testing.assert_close(found, model(x), rtol=0.02, atol=0.02)
    torch.testing.assert_close(ForTensorCores(model, autocast=False)(x), model(x), rtol=1e-4, atol=1e-5)
