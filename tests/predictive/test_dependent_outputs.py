"""Predictions of networks in which one weight meets several rows of an example, or is used twice."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.estimators import clipped_reparam
from bayeslim.posteriors import MeanField

NOISE = bl.likelihoods.Gaussian(noise=0.1)
SAMPLES = 4000
TRAINED = [bl.local_reparam, clipped_reparam, bl.flipout, bl.moments]


def bayesian(network: nn.Module, estimator: object = bl.local_reparam, scale: float = 0.1) -> nn.Module:
    torch.manual_seed(1)
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    return bl.bayesianize_(network, posterior=partial(MeanField, scale=scale), estimator=estimator)  # pyright: ignore


def epistemic(network: nn.Module, x: Tensor) -> Tensor:
    found = bl.predict(network, x, samples=SAMPLES, seed=0, likelihood=NOISE).epistemic.flatten()
    again = bl.evaluate(network, (x, torch.zeros(len(x), 1)), samples=50, likelihood=NOISE)["nll"]
    assert again > 0
    return found


class Twins(nn.Module):
    """The distance between the two halves of an input, seen by one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.layers(x[:, :4]), self.layers(x[:, 4:])
        return (first - second).square().sum(1, keepdim=True)


@pytest.mark.parametrize("estimator", TRAINED)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_equal_halves_are_equal_under_every_weight(estimator: object, count: int) -> None:
    network = bayesian(Twins(), estimator)
    found = bl.predict(network, torch.randn(count, 4).repeat(1, 2), samples=20, likelihood=NOISE)
    torch.testing.assert_close(found.mean, torch.zeros(count, 1), rtol=0, atol=1e-6)


class Bag(nn.Module):
    """The mean over tokens that its own code puts into one batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(0, 1)).view(len(x), -1).mean(1, keepdim=True)


@pytest.mark.parametrize("estimator", TRAINED)
@pytest.mark.parametrize("count", [1, 3, 100])
def test_tokens_in_one_batch_share_their_weight(estimator: object, count: int) -> None:
    """`Var = scale^2 |mean token|^2`; five standard errors of a variance."""
    x = torch.randn(count, 50, 4) + 1
    exact = 0.01 * x.mean(1).square().sum(1)
    torch.testing.assert_close(
        epistemic(bayesian(Bag(), estimator), x), exact, rtol=5 * (2 / SAMPLES) ** 0.5, atol=1e-6
    )


class Tied(nn.Module):
    """Two layers with one weight: `W x + W x`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 1, bias=False), nn.Linear(4, 1, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.second(x)


def test_tied_layers_draw_one_weight() -> None:
    """`Var = 4 scale^2 |x|^2`, twice that of two weights."""
    x = torch.randn(7, 4)
    exact = 0.04 * x.square().sum(1)
    torch.testing.assert_close(epistemic(bayesian(Tied()), x), exact, rtol=5 * (2 / SAMPLES) ** 0.5, atol=1e-6)


class Queries(nn.Module):
    """The same three rows for all examples, beside a layer that draws weights as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 1, bias=False), nn.Linear(4, 1, bias=False)
        self.register_buffer("rows", torch.ones(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) + self.layer(self.rows).mean()


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("head", [bl.local_reparam, bl.weight_sample])
def test_rows_that_are_no_examples_share_their_weight(count: int, head: object) -> None:
    """Three rows are not three examples, even if there are three."""
    network = bayesian(Queries())
    network.get_submodule("head").estimator = head  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
    x = torch.randn(count, 4)
    exact = 0.01 * (x.square().sum(1) + 4)
    torch.testing.assert_close(epistemic(network, x), exact, rtol=5 * (2 / SAMPLES) ** 0.5, atol=1e-6)


def test_one_vector_per_example_is_still_drawn_by_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap way where it is right: no weight is drawn."""
    network = bayesian(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    monkeypatch.setattr(MeanField, "rsample", lambda self: pytest.fail("drew a weight"))
    bl.predict(network, torch.randn(5, 4), samples=10, likelihood=NOISE)


def test_clipping_is_for_training() -> None:
    """Kernels are drawn as with any other estimator of training, and from the posterior as it is."""
    x = torch.randn(3, 1, 12, 12) + 1
    networks = [
        bayesian(nn.Sequential(nn.Conv2d(1, 1, 3, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten()), estimator, 0.3)
        for estimator in (bl.local_reparam, clipped_reparam)
    ]
    expected, found = (bl.predict(network, x, samples=50, seed=0, likelihood=NOISE) for network in networks)
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(found.epistemic, expected.epistemic)
