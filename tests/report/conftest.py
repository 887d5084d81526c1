"""Small trained networks and what a report says about them."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.report import Content, Names, collect

SAMPLES = 40
Pair = tuple[Tensor, Tensor]


class Case(NamedTuple):
    """A network, its data and the report's content."""

    model: nn.Module
    train: Pair
    validation: Pair
    test: Pair
    history: bl.History
    content: Content


@pytest.fixture(scope="session")
def moons() -> Case:
    """Two classes over two inputs; the test part is more than one batch."""
    x, y = bl.data.moons(1700, noise=0.3, seed=0)
    train, validation, test = ((x[part], y[part]) for part in (slice(300), slice(300, 500), slice(500, None)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = bl.mlp([2, 12, 12, 2], method="ard")
    history = bl.fit(
        model, train, likelihood=bl.Categorical(), epochs=25, lr=2e-2, seed=0, validation=validation, progress=False,
        kl_schedule=bl.schedules.warmup_linear(2, 15),
    )  # fmt: skip
    content = collect(model, train, test, validation=validation, history=history, samples=SAMPLES)
    return Case(model, train, validation, test, history, content)


@pytest.fixture(scope="session")
def curve() -> Case:
    """A regression over one input, standardised with mean 100 and standard deviation 20."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(500, 1, generator=generator) * 4 - 2
    y = torch.sin(2 * x) + 0.2 * torch.randn(500, 1, generator=generator)
    train, validation, test = ((x[part], y[part]) for part in (slice(300), slice(300, 400), slice(400, None)))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = bl.mlp([1, 16, 1], method="graves")
    likelihood = bl.likelihoods.Gaussian(noise=0.3, learn_noise=True)
    history = bl.fit(model, train, likelihood=likelihood, epochs=30, lr=2e-2, seed=0, progress=False)
    names = Names(features=("day",), feature_scales=((10.0, 5.0),), target="price", target_scale=(100.0, 20.0))
    content = collect(model, train, test, validation=validation, history=history, names=names, samples=SAMPLES)
    return Case(model, train, validation, test, history, content)


@pytest.fixture(scope="session")
def pictures() -> Case:
    """Twelve classes of grey images of 4 x 4 pixels, barely trained, and unfamiliar noise."""
    generator = torch.Generator().manual_seed(2)
    patterns = (torch.rand(12, 1, 4, 4, generator=generator) > 0.5).float()
    y = torch.arange(240) % 12
    x = (patterns[y] + 0.2 * torch.randn(240, 1, 4, 4, generator=generator)).clamp(0, 1)
    train, test = (x[:160], y[:160]), (x[160:], y[160:])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), *bl.mlp([16, 20, 12], method="ard"))
    history = bl.fit(model, train, likelihood=bl.Categorical(), epochs=8, lr=2e-2, seed=0, progress=False)
    unfamiliar = torch.rand(50, 1, 4, 4, generator=generator)
    content = collect(model, train, test, history=history, unfamiliar=unfamiliar, samples=SAMPLES)
    return Case(model, train, (unfamiliar, unfamiliar), test, history, content)
