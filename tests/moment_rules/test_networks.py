"""Whole networks: noisy inputs through plain ones, moments of Bayesian ones against draws of their weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeslim import bayesianize_, moments, using, weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.models.resnet import BasicBlock
from bayeslim.models.transformer import encoder_layer, gelu, relu
from bayeslim.posteriors import MeanField
from contracts.members import over
from moment_rules.monte_carlo import uncertain


def ratio(found: Gaussian, samples: Tensor) -> float:
    """Predicted over sampled standard deviation, averaged over the elements that vary."""
    std = samples.std(0)
    return (found.scale[std > 0] / std[std > 0]).mean().item()


def settled(model: nn.Module) -> nn.Module:
    """Float64, in evaluation, with BatchNorm statistics that are not the initial ones."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean, module.running_var = (
                torch.randn(module.num_features),
                torch.rand(module.num_features) + 0.5,
            )
    return model.double().eval()


PLAIN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutional": (
        lambda: nn.Sequential(
            *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(nn.Conv2d(4, 4, 3), nn.LeakyReLU(), nn.AvgPool2d(2), nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 3)),
        ),
        (2, 1, 12, 12),
    ),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "encoder, norm first": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, norm_first=True, activation="gelu"),
        (5, 2, 8),
    ),
    "two encoders": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False),
        (5, 2, 8),
    ),
    "decoder": (lambda: Decoder(), (2, 5, 8)),
    "residual": (lambda: BasicBlock(3, 3), (2, 3, 6, 6)),
    "residual, strided": (lambda: BasicBlock(3, 4, stride=2), (2, 3, 6, 6)),
}


class Decoder(nn.Module):
    """torch's decoder layer, attending to its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x)


@over("name", PLAIN)
@over("gradients", [True, False])
def test_a_plain_network_takes_a_noisy_input(name: str, gradients: bool) -> None:
    """Untouched, also where torch looks for fused kernels: without gradients, in evaluation.

    What one layer makes of shared inputs is correlated, which the next one cannot know: up to a quarter too small.
    """
    build, shape = PLAIN[name]
    torch.manual_seed(0)
    model, x = settled(build()), uncertain(*shape, scale=0.03)
    with torch.set_grad_enabled(gradients):
        found = model(x)
    assert isinstance(found, Gaussian)
    torch.manual_seed(1)
    samples = torch.stack([model(x.rsample()).detach() for _ in range(1000)])
    assert 0.74 < ratio(found, samples) < 1.1
    assert ((found.loc - samples.mean(0)).abs().mean() / samples.std(0).mean()).item() < 0.1


def bayesian(model: nn.Module, scale: float = 0.01) -> nn.Module:
    return bayesianize_(model, posterior=functools.partial(MeanField, scale=scale), estimator=weight_sample)


def lenet() -> nn.Module:
    """At torch's initialisation."""
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 120, 5), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


def he(model: nn.Module) -> nn.Module:
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    return model


BAYESIAN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "encoder, norm first": (lambda: encoder_layer(16, 4, 32, activation=gelu, norm_first=True), (3, 6, 16)),
    "encoder, norm last": (lambda: encoder_layer(16, 4, 32, activation=relu), (3, 6, 16)),
    "residual": (lambda: BasicBlock(6, 6), (2, 6, 8, 8)),
    "residual, strided": (lambda: BasicBlock(4, 6, stride=2), (2, 4, 8, 8)),
    "lenet": (lenet, (4, 1, 28, 28)),
    "lenet, He": (lambda: he(lenet()), (4, 1, 28, 28)),
}


def drawn(model: nn.Module, x: Tensor, count: int) -> Tensor:
    torch.manual_seed(2)
    with torch.no_grad():
        return torch.stack([model(x) for _ in range(count)])


@over("name", BAYESIAN)
def test_moments_of_a_network_against_draws_of_its_weights(name: str) -> None:
    """The predicted deviation is on average within 5 % of the sampled one."""
    build, shape = BAYESIAN[name]
    torch.manual_seed(0)
    model = settled(bayesian(build())).float()
    x = torch.randn(shape)
    with using(model, moments), torch.no_grad():
        found: Any = model(x)
    samples = drawn(model, x, 800)
    assert 0.95 < ratio(found, samples) < 1.05
    torch.testing.assert_close(found.loc, samples.mean(0), rtol=0, atol=0.5 * samples.std(0).max().item())


def uncertain_network() -> nn.Module:
    """A Bayesian convolution of scales 1e-4 before plain layers: squares of them underflow in float16."""
    torch.manual_seed(0)
    net = nn.ModuleDict(
        {
            "conv": nn.Conv1d(10, 10, 3, padding=1),
            "norm": nn.BatchNorm1d(10),
            "mixed": nn.Conv1d(10, 10, 1),
            "block": nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True),
            "lstm": nn.LSTM(16, 8, batch_first=True),
            "head": nn.Linear(8, 3),
        }
    )
    bayesianize_(net, where=lambda name, _: name in ("conv", "lstm"), estimator=moments)
    for name, parameter in net.named_parameters():
        if name.endswith("log_scale"):
            parameter.data.fill_(math.log(1e-4))
    return net.eval()


def run(net: Any, x: Tensor) -> Any:
    x = net["mixed"](torch.relu(net["norm"](torch.relu(net["conv"](x)))))
    return net["head"](net["lstm"](net["block"](x))[0][:, -1])


@pytest.mark.parametrize("how", ["autocast", "network"])
def test_float16_keeps_small_variances(how: str) -> None:
    net, x = uncertain_network(), torch.randn(4, 10, 16, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = run(net, x)
        if how == "network":
            found = run(net.half(), x.half())
        else:
            with torch.autocast("cpu", torch.float16):
                found = run(net, x)
    torch.testing.assert_close(found.loc.float(), expected.loc, rtol=0, atol=2e-3)
    torch.testing.assert_close(found.variance.float(), expected.variance, rtol=0.02, atol=0)
    assert found.variance.dtype == torch.float32
