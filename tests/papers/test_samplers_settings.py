"""Settings and numbers of both samplers experiments are those of arXiv 2210.12957 and its code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import CVAdam
from bayeslim_papers.comparison.training import Config as Comparison
from bayeslim_papers.comparison.training import pruner_for
from bayeslim_papers.images.images import CIFAR10, made_images
from bayeslim_papers.samplers import cifar as samplers
from bayeslim_papers.samplers import mnist_methods as methods
from bayeslim_papers.samplers.cifar import METHODS, PAPER, Samplers
from bayeslim_papers.samplers.imagenet import PAPER as IMAGENET
from bayeslim_papers.samplers.imagenet import SamplersImagenet
from bayeslim_papers.samplers.mnist_methods import PRUNED, Config
from papers.spy import Spy, Stopped, values

CODE: dict[str, Any] = {
    "temperature": "cold",
    "cycles": 4,
    "per_cycle": 3,
    "weight_decay": 5e-4,
    "spike_decay": 1e-3,
    "soft_threshold": 1e-4,
}
"""The defaults of its code for CIFAR-10; the temperature is `1/N`."""


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(), CODE),
        (Samplers(), CODE | {"epochs": 200, "batch_size": 64, "lr": 1.0, "width": 64}),
        (SamplersImagenet(), CODE | {"epochs": 200, "weight_decay": 1e-4, "burn_in": 1, "batch_size": 256}),
    ],
    ids=["mnist", "cifar", "imagenet"],
)
def test_settings_are_those_of_the_paper(config: Any, expected: dict[str, Any]) -> None:
    assert {name: getattr(config, name) for name in expected} == expected


def test_numbers_are_those_of_the_tables() -> None:
    assert PAPER["accuracy %"] == {
        "sgd": 95.0,
        "cvadam": 95.5,
        "dfp-70": 94.7,
        "dfp-80": 94.5,
        "dfp-90": 93.9,
        "dpf-70": 94.8,
        "dpf-80": 94.5,
        "dpf-90": 93.8,
    }
    assert PAPER["accuracy % of others"] == {
        "cSGLD": 95.7,
        "SM, 70, 80, 90 % sparse": [92.8, 91.1, 89.7],
        "DSR, 70, 80, 90 % sparse": [93.1, 91.2, 90.0],
    }
    assert IMAGENET["accuracy %"]["cvadam"] == 76.8
    assert CIFAR10 == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


@pytest.mark.parametrize("name", METHODS)
def test_networks_of_cifar_are_trained_in_cycles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cosines for all but plain SGD, which has one; the optimiser is that of the code."""
    spy = Spy()
    monkeypatch.setattr(samplers, "train", spy)
    with pytest.raises(Stopped):
        Samplers(width=2).measured(name, 0, made_images(8, 3, (32, 16), "cpu"))
    options = spy.calls[0]
    cycles = 1 if name == "sgd" else 4
    assert (options["epochs"], options["batch_size"]) == (200, 64)
    found = values(options["lr_schedule"], 200, (0, 25, 50, 100))
    once = [0.5 * (1 + math.cos(math.pi / 8)), 0.5 * (1 + math.cos(math.pi / 4)), 0.5]
    assert found == pytest.approx([1.0, 0.5, 1.0, 1.0] if cycles == 4 else [1.0, *once])
    group = options["optimizer"].param_groups[0]
    if name.startswith("sgd"):
        assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.05, 0.9, 5e-4)
    else:
        assert isinstance(options["optimizer"], CVAdam)
        assert (group["lr"], group["num_data"], group["temperature"]) == (1.0, 32, "cold")


def test_masks_of_cifar_are_those_of_the_settings() -> None:
    pruner = Samplers().pruner(METHODS["dfp-90"], nn.Linear(4, 4))
    assert (pruner.spike_decay, pruner.soft_threshold, pruner.hard_threshold) == (1e-3, 1e-4, 0.0)
    assert pruner.warm_up == 20


@pytest.mark.parametrize(
    "pruner",
    [
        lambda model: Samplers().pruner(METHODS["dfp-90"], model),
        lambda model: methods._pruner(Config(), model, PRUNED["dfp-90"]),
        lambda model: pruner_for(Comparison((), (), ()), model),
    ],
    ids=["cifar", "mnist", "comparison"],
)
def test_the_target_alone_prunes_whatever_the_unit_of_thresholds(pruner: Any) -> None:
    """Records were made while hard thresholds were ranges for convolutions: theirs are zero, which no unit changes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(32, 10))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e-6)
    sizes = torch.cat([p.detach().abs().flatten() for p in model.parameters() if p.ndim > 1])
    made = pruner(model)
    made.update_()
    assert made.sparsity() == 0
    made.epoch = made.target.by_epoch
    made.update_()
    kept = torch.cat([mask.flatten() for mask in made.masks().values()]).bool()
    assert made.sparsity() == pytest.approx(made.target.sparsity, abs=1 / len(sizes))
    assert sizes[kept].min() > sizes[~kept].max()


@pytest.mark.parametrize("name", ["cvadam", *PRUNED])
def test_networks_of_mnist_are_sampled_by_the_settings(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold CV-Adam in four cycles, with the masks of the settings."""
    spy, made = Spy(), []

    def remembered(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return SpikeAndSlab(*arguments, **options)

    SpikeAndSlab = methods.SpikeAndSlab
    monkeypatch.setattr(methods, "SpikeAndSlab", remembered)
    monkeypatch.setattr(bl, "fit", spy)
    data = torch.zeros(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)
    with pytest.raises(Stopped):
        methods.METHODS[name](Config(), data, 0)
    options = spy.calls[0]
    assert values(options["lr_schedule"], 20, (0, 5, 10, 15)) == pytest.approx([1.0] * 4)
    assert (options["epochs"], options["batch_size"]) == (20, 128)
    model = spy.arguments[0]
    sampler = options["optimizer"](bl.param_groups(model))
    assert isinstance(sampler, CVAdam)
    group = sampler.param_groups[0]
    assert (group["temperature"], group["lr"], group["num_data"]) == ("cold", 0.3, 8)
    if name in PRUNED:
        asked = ("spike_decay", "soft_threshold", "hard_threshold", "warm_up")
        assert [made[0][key] for key in asked] == [1e-3, 1e-4, 0.0, 2]
    assert len(made) == (name in PRUNED)
