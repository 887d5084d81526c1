"""How experiments train one network: what the record says of it, and interruptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.schedules import Progress, staircase
from bayeslim_papers.experiment import Log
from bayeslim_papers.images.varied import made_images
from bayeslim_papers.training import in_percent, train

IMAGES = made_images(6, 3, (50, 30), "cpu").train


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), bl.layers.Linear(64, 4))


def trained(model: nn.Module, **options: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"epochs": 4, "batch_size": 16, "seed": 0, "lr": 0.01, "likelihood": bl.Categorical()}
    return train(model, IMAGES.loader(16), **(chosen | options))


class Interruption(Exception):
    """What stops a training here."""


def test_the_facts() -> None:
    said: list[str] = []
    facts = trained(network(), kl_schedule=staircase(1e-5, every=5), precision="bfloat16", log=Log(said.append))
    assert facts["epochs"] == 4 and facts["steps"] == 4 * 3 and len(facts["losses"]) == len(said) == 4
    assert facts["losses"][-1] < facts["losses"][0] and 0 < facts["epoch_seconds"] < facts["seconds"]
    assert facts["peak_bytes"] is None and facts["precision"] == "float32" and facts["cuda_graph"] is False
    assert facts["kl_weight"] == pytest.approx(1e-5 * 10)  # the last step is number 11
    data = torch.randn(50, 3, 6, 6), torch.randint(4, (50,))
    facts = train(network(), data, epochs=2, batch_size=16, seed=0, likelihood=bl.Categorical())
    assert facts["steps"] == 2 * 4  # of which the last has two rows


def test_an_interrupted_training_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    """Its times are those of all epochs, each counted once."""
    whole, stopped, resumed = network(), network(), network()
    trained(whole)

    def stop(model: nn.Module, optimizer: torch.optim.Optimizer, now: Progress) -> None:
        if now.epoch == 2:
            raise Interruption

    with pytest.raises(Interruption):
        trained(stopped, log=Log(folder=tmp_path), after_epoch=stop)
    taken = json.loads((tmp_path / "seconds.json").read_text())
    facts = trained(resumed, log=Log(folder=tmp_path))
    assert len(taken) == 3 and len(facts["losses"]) == 4
    for one, other in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    all_of_them = json.loads((tmp_path / "seconds.json").read_text())
    assert all_of_them[:2] == taken[:2] and len(all_of_them) == 4 and facts["seconds"] == sum(all_of_them)
    assert trained(network(), log=Log(folder=tmp_path))["seconds"] == facts["seconds"]  # nothing was left to do


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    trained(network(), log=Log(folder=tmp_path))
    with pytest.raises(ValueError, match="seed=0, now 1"):
        trained(network(), log=Log(folder=tmp_path), seed=1)


def test_training_leaves_the_random_state_alone() -> None:
    model = network()
    state = torch.random.get_rng_state()
    trained(model)
    assert torch.equal(state, torch.random.get_rng_state())


def test_scores_are_in_percent() -> None:
    assert in_percent({"accuracy": 0.5, "nll": 2.0, "ece": 0.1, "brier": 3.0}) == {
        "accuracy": 50.0,
        "nll": 2.0,
        "ece": 0.1,
    }
