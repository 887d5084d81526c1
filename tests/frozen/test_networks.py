"""Saved networks, slim files and snapshots of the first edition load and say what they said."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import bayeslim as bl
from frozen.answers import FILES, KIND, agree, closed_forms, drawn, recorded
from frozen.own_networks import OWN

RECORDED = recorded()
SAMPLES = 1000
ROUNDED = {torch.bfloat16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-9}
"""Type of a network -> error of its own arithmetic, in parts of the largest number."""


def inputs(name: str) -> Tensor:
    return torch.tensor(RECORDED["inputs"][KIND.get(name, "vectors")])


def loaded(name: str) -> torch.nn.Module:
    return bl.load(FILES / "networks" / f"{name}.safetensors", OWN[name]() if name in OWN else None).eval()


def type_of(model: torch.nn.Module) -> torch.dtype:
    """Of the means; scales may be kept in a finer one."""
    return min((parameter.dtype for parameter in model.parameters()), key=lambda dtype: torch.finfo(dtype).bits)


def test_every_file_is_recorded() -> None:
    assert {file.stem for file in (FILES / "networks").iterdir()} == RECORDED["networks"].keys()


@pytest.mark.parametrize("name", RECORDED["networks"])
def test_a_network_says_what_it_said(name: str) -> None:
    """By the closed forms in float64, and by its mean and by draws in its own type."""
    model, x, expected = loaded(name), inputs(name), RECORDED["networks"][name]
    found = closed_forms(model, x)
    assert not [form for form, value in found.items() if not agree(value, expected[form], 1e-6)]
    rounded, own = ROUNDED[type_of(model)], x.to(type_of(model)) if x.is_floating_point() else x
    answer = bl.predict(model, own, method="mean", likelihood=bl.likelihoods.Gaussian())
    assert agree(answer.mean, expected["mean"], rounded)
    draws = drawn(model, own, SAMPLES, seed=0)
    mean, second, fourth = (torch.tensor(expected[name], dtype=torch.float64) for name in ("draws", "second", "fourth"))
    share = 1 / SAMPLES + 1 / RECORDED["draws"]
    errors = (second * share).sqrt(), ((fourth - second.square()).clamp_min(0) * share).sqrt()
    deviations = (draws.mean(0) - mean).abs(), (draws.var(0, correction=0) - second).abs()
    assert bool((deviations[0] <= 5 * errors[0] + rounded * mean.abs().max()).all())
    assert bool((deviations[1] <= 5 * errors[1] + rounded * mean.square().max()).all())


@pytest.mark.parametrize("name", [name for name, found in RECORDED["networks"].items() if "remembered" in found])
def test_a_likelihood_is_remembered(name: str) -> None:
    model = loaded(name)
    answer, expected = bl.predict(model, inputs(name), method="mean"), RECORDED["networks"][name]["remembered"]
    assert agree(answer.mean, expected["mean"], 1e-5) and agree(answer.aleatoric, expected["aleatoric"], 1e-5)


@pytest.mark.parametrize("name", RECORDED["slim"])
def test_a_slim_file_holds_the_mean_network(name: str) -> None:
    model = bl.export.load_slim(FILES / "slim" / f"{name}.slim.safetensors")
    found = closed_forms(model, torch.tensor(RECORDED["inputs"]["slim"]))
    assert agree(found["mean"], RECORDED["slim"][name]["mean"], 1e-6)


def test_snapshots_predict_together(tmp_path: Path) -> None:
    snapshots = bl.Snapshots(bl.models.mlp([3, 6, 2]).double(), FILES / "snapshots")
    x = torch.tensor(RECORDED["inputs"]["vectors"], dtype=torch.float64)
    answer, expected = bl.predict(snapshots, x), RECORDED["snapshots"]
    found: dict[str, Any] = {name: getattr(answer, name) for name in expected}
    assert len(snapshots) == 3 and not [name for name in found if not agree(found[name], expected[name], 1e-6)]
