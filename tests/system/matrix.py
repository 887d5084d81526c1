"""One layer of every kind, with an input for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim import bayesianize_, estimators, layers, models
from bayeslim.export.moments import MomentsNetwork
from bayeslim.gaussian import Gaussian
from bayeslim.models.resnet import BasicBlock
from bayeslim.posteriors import MeanField
from export.networks import ByHand

KINDS: dict[str, tuple[type[layers.BayesLayer], dict[str, Any], tuple[int, ...]]] = {
    "Linear": (layers.Linear, {}, (2, 4)),
    "Conv1d": (layers.Conv1d, {"kernel_size": 3, "padding": 1}, (2, 4, 5)),
    "Conv2d": (layers.Conv2d, {"kernel_size": 3, "padding": 1, "groups": 2}, (2, 4, 5, 4)),
    "Conv3d": (layers.Conv3d, {"kernel_size": 2, "stride": 2}, (2, 4, 4, 4, 4)),
    "ConvTranspose1d": (layers.ConvTranspose1d, {"kernel_size": 3, "stride": 2}, (2, 4, 5)),
    "ConvTranspose2d": (
        layers.ConvTranspose2d,
        {"kernel_size": 3, "stride": 2, "output_padding": 1, "groups": 2},
        (2, 4, 3, 4),
    ),
    "ConvTranspose3d": (layers.ConvTranspose3d, {"kernel_size": 2}, (2, 4, 3, 3, 3)),
}

SAMPLING: dict[str, Callable[..., Any]] = {
    "weight_sample": estimators.weight_sample,
    "local_reparam": estimators.local_reparam,
    "flipout": estimators.flipout,
}

ESTIMATORS: dict[str, Callable[..., Any]] = {
    **SAMPLING,
    "mean_only": estimators.mean_only,
    "moments": estimators.moments,
}


def layer(kind: str, seed: int = 0, **bayes: Any) -> layers.BayesLayer:
    """A layer with posteriors over weight and bias, nothing about it at its initial value."""
    torch.manual_seed(seed)
    build, options, _ = KINDS[kind]
    make: Any = build
    result: layers.BayesLayer = make(4, 6, **options, **{"bias_posterior": MeanField} | bayes)
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return result


def example(kind: str, seed: int = 0) -> Tensor:
    return torch.randn(KINDS[kind][2], generator=torch.Generator().manual_seed(seed))


def output(module: torch.nn.Module, x: Tensor, seed: int = 0) -> Tensor:
    """The output for given noise; of a Gaussian output the mean and variance, stacked."""
    torch.manual_seed(seed)
    result = module(x)
    return torch.stack([result.loc, result.variance]) if isinstance(result, Gaussian) else result


class Moments(torch.nn.Module):
    """A layer that propagates moments, with tensors for outputs."""

    def __init__(self, layer: layers.BayesLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        result: Any = self.layer(x)
        return torch.stack([result.loc, result.variance])


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "lenet": (models.lenet5_caffe, (2, 1, 28, 28)),
    "vit": (lambda: models.ViT(image=8, patch=4, dim=8, depth=1, heads=2, hidden=16, classes=3), (2, 1, 8, 8)),
    "resnet": (
        lambda: nn.Sequential(
            *(
                nn.Conv2d(1, 4, 3, padding=1),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                BasicBlock(4, 4),
                BasicBlock(4, 6, stride=2),
            ),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)),
        ),
        (2, 1, 8, 8),
    ),
    "by hand": (ByHand, (2, 3, 8, 8)),
    "lstm": (lambda: LastStep(nn.LSTM(3, 4, batch_first=True)), (2, 2, 3)),
    "gru": (lambda: LastStep(nn.GRU(3, 4, batch_first=True)), (2, 2, 3)),
}
"""Networks whose moments are propagated in one pass, with the shape of their input."""


class LastStep(nn.Module):
    """The last output of a recurrent layer."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: Tensor) -> Tensor:
        return self.recurrent(x)[0][:, -1]


def moments_network(name: str) -> tuple[MomentsNetwork, Tensor]:
    """The network and an input for it."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    return MomentsNetwork(bayesianize_(build(), estimator=estimators.weight_sample)), torch.randn(shape)


def with_tensor_output(layer: layers.BayesLayer) -> torch.nn.Module:
    return Moments(layer) if layer.estimator is estimators.moments else layer
