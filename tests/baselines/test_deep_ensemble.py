"""Ensembles: independent, reproducible, and averaged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.baselines import deep_ensemble
from bayeslim.likelihoods import Gaussian
from training.problems import blobs


def train(model: nn.Module, seed: int) -> None:
    bl.fit(model, blobs(), likelihood=bl.Categorical(), epochs=2, seed=seed, progress=False)


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))


def test_members_differ_and_are_averaged() -> None:
    state = torch.get_rng_state()
    ensemble = deep_ensemble(build, train, members=3, seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    assert len(ensemble) == 3
    weights = [ensemble[index]["0.weight"] for index in range(3)]
    assert not torch.equal(weights[0], weights[1]) and not torch.equal(weights[1], weights[2])
    x, _ = blobs()
    parts: list[torch.Tensor] = []
    for index in range(3):
        member = build().eval()
        member.load_state_dict(ensemble[index])
        parts.append(member(x).softmax(-1).detach())
    torch.testing.assert_close(bl.predict(ensemble, x).mean, torch.stack(parts).mean(0))


def test_the_noise_is_that_of_all_members() -> None:
    x = torch.linspace(-1, 1, 32)[:, None]
    learned: list[Gaussian] = []

    def train_noise(model: nn.Module, seed: int) -> None:
        learned.append(Gaussian(2.0 / (1 + len(learned)), learn_noise=True))
        bl.fit(model, (x, x), likelihood=learned[-1], epochs=1, seed=seed, progress=False)

    ensemble = deep_ensemble(lambda: nn.Linear(1, 1), train_noise, members=3)
    variances = torch.stack([one.log_noise.detach() for one in learned]).mul(2).exp()
    assert variances.max() > 4 * variances.min()
    torch.testing.assert_close(bl.predict(ensemble, x).aleatoric, variances.mean().expand(32, 1))
    assert learned[-1].log_noise.mul(2).exp().item() == variances[-1].item()


def test_the_seed_repeats_it() -> None:
    first, again, other = (deep_ensemble(build, train, members=1, seed=seed)[0]["0.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_no_members() -> None:
    with pytest.raises(ValueError, match=r"`members` must be a positive integer, got 0"):
        deep_ensemble(build, train, members=0)
