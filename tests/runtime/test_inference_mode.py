"""What is made or read inside `torch.inference_mode()` can be trained outside it, or is refused with what to do."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.export import load_slim, save_slim
from bayeslim.likelihoods import Gaussian
from bayeslim.training import fit_many

X, Y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2
OWN: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": 1}


@pytest.mark.parametrize("way", ["load", "load into", "load_slim", "mlp", "bayesianize_"])
def test_networks_can_be_trained(tmp_path: Path, way: str) -> None:
    before = bl.mlp([3, 8, 2])
    bl.fit(before, (X, Y), **OWN)
    bl.save(before, tmp_path / "net.safetensors")
    save_slim(before, tmp_path / "net.slim.safetensors")
    outside = bl.models.mlp([3, 8, 2])
    with torch.inference_mode():
        match way:
            case "load":
                model = bl.load(tmp_path / "net.safetensors")
            case "load into":
                model = bl.load(tmp_path / "net.safetensors", outside)
            case "load_slim":
                model = load_slim(tmp_path / "net.slim.safetensors")
            case "mlp":
                model = bl.mlp([3, 8, 2])
            case _:
                model = bl.bayesianize_(outside)
        assert torch.is_inference_mode_enabled()
        bl.predict(model, X, samples=2, likelihood=bl.Categorical())
    assert not any(tensor.is_inference() for tensor in model.state_dict().values())
    bl.fit(model, (X, Y), **OWN)


def test_a_network_that_was_made_inside_can_be_loaded_and_converted_there(tmp_path: Path) -> None:
    bl.save(bl.mlp([3, 8, 2]), tmp_path / "net.safetensors")
    with torch.inference_mode():
        model = bl.load(tmp_path / "net.safetensors", bl.models.mlp([3, 8, 2]))
        assert bl.predict(model, X, samples=2, likelihood=bl.Categorical()).mean.shape == (12, 2)
        bl.bayesianize_(nn.Sequential(nn.Linear(3, 2)))


def test_what_cannot_be_trained_is_named() -> None:
    with torch.inference_mode():
        model, noise = nn.Linear(3, 2), Gaussian(learn_noise=True)
    message = "weight of Linear was made inside torch.inference_mode.*: make it outside, or take copy.deepcopy"
    with pytest.raises(ValueError, match=message):
        bl.fit(model, (X, Y), **OWN)
    with pytest.raises(ValueError, match=message):
        fit_many([model], (X, Y), **OWN)
    with pytest.raises(ValueError, match="of Gaussian was made inside"):
        bl.fit(nn.Linear(3, 1), (X, Y), likelihood=noise, epochs=1)
    bl.fit(copy.deepcopy(model), (X, Y), **OWN)
