"""Every member of every axis; a new member is one line here and then runs through all contracts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayeslim import estimators, layers, priors
from bayeslim.ops import ConvOp, ConvTransposeOp, EmbeddingOp, LinearOp, Op
from bayeslim.posteriors import KTied, MatrixNormal, MeanField, Multiplicative, Posterior, PosteriorFactory
from contracts.oracles import LogDensity, log_normal

POSTERIORS: dict[str, PosteriorFactory] = {
    "MeanField": functools.partial(MeanField, scale=0.3),
    "MeanField-bounded": functools.partial(MeanField, scale=0.3, max_scale=0.5),
    "Multiplicative": functools.partial(Multiplicative, alpha=0.2),
    "Multiplicative-bounded": functools.partial(Multiplicative, alpha=0.2, max_alpha=1.0),
    "KTied-1": functools.partial(KTied, k=1, scale=0.3),
    "KTied-2": functools.partial(KTied, k=2, scale=0.3),
    "KTied-3": functools.partial(KTied, k=3, scale=0.3),
    "MatrixNormal": functools.partial(MatrixNormal, scale=0.3),
}

PRIORS: dict[str, Callable[[], priors.Prior]] = {
    "Normal": functools.partial(priors.Normal, 0.2, 0.7),
    "HeNormal": priors.HeNormal,
    "LogUniform": priors.LogUniform,
    "LogUniform-kingma": functools.partial(priors.LogUniform, fit="kingma"),
    "ARD": priors.ARD,
    "GammaARD": functools.partial(priors.GammaARD, a=0.51, b=1e-8),
    "GammaARD-wide": functools.partial(priors.GammaARD, a=2.0, b=0.1),
    "StudentT": functools.partial(priors.StudentT, nu=3.0, scale=0.5),
    "ScaleMixture": priors.ScaleMixture,
    "ScaleMixture-wide": functools.partial(priors.ScaleMixture, pi=0.25, wide=1.0, narrow=0.1),
}

DENSITIES: dict[str, LogDensity] = {
    "Normal": log_normal(0.2, 0.7),
    "HeNormal": log_normal(0, 1),
}
"""The log density of a single weight, for priors whose KL is a closed form; quadrature tells whether it is right."""

PROPER = [name for name in PRIORS if name not in ("GammaARD", "GammaARD-wide")]
"""Priors whose KL is not negative (the log-uniform one by its normalisation)."""

SAMPLERS: dict[str, Callable[..., Tensor]] = {
    "weight_sample": estimators.weight_sample,
    "local_reparam": estimators.local_reparam,
    "flipout": estimators.flipout,
}

DETERMINISTIC: dict[str, Callable[..., Any]] = {
    "mean_only": estimators.mean_only,
    "moments": estimators.moments,
    "taylor_moments": estimators.taylor_moments,
}

ESTIMATORS: dict[str, Callable[..., Any]] = {
    **SAMPLERS,
    **DETERMINISTIC,
    "independent_draws": estimators.independent_draws,
    "clipped_reparam": estimators.clipped_reparam,
}


@dataclass(frozen=True)
class OpCase:
    """An op with a weight and an input small enough for dense algebra."""

    op: Op
    weight: tuple[int, ...]
    x: tuple[int, ...]

    def input(self, seed: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        if not self.op.numeric_input:
            return torch.randint(self.weight[0], self.x, generator=generator)
        return torch.randn(self.x, generator=generator, dtype=torch.float64)


OPS: dict[str, OpCase] = {
    "linear": OpCase(LinearOp(), (4, 5), (2, 5)),
    "linear-tokens": OpCase(LinearOp(), (4, 3), (2, 2, 3)),
    "conv1d": OpCase(ConvOp(1, (1,), (1,), (1,)), (4, 2, 2), (2, 2, 2)),
    "conv2d": OpCase(ConvOp(2, (1, 1), (1, 0), (1, 1)), (4, 2, 2, 2), (1, 2, 2, 3)),
    "conv2d-groups": OpCase(ConvOp(2, (2, 1), (1, 0), (1, 1), groups=2), (4, 2, 2, 2), (2, 4, 2, 2)),
    "conv2d-circular": OpCase(ConvOp(2, (1, 2), (1, 1), (1, 1), padding_mode="circular"), (4, 1, 2, 2), (1, 1, 2, 3)),
    "conv3d": OpCase(ConvOp(3, (1, 1, 1), "valid", (1, 1, 1)), (4, 1, 2, 2, 1), (1, 1, 2, 3, 1)),
    "transposed2d": OpCase(
        ConvTransposeOp(2, (2, 1), (1, 1), (1, 1), output_padding=(1, 0)), (4, 2, 2, 2), (1, 2, 2, 2)
    ),
    "transposed2d-groups": OpCase(
        ConvTransposeOp(2, (1, 1), (0, 1), (1, 1), groups=2, output_padding=(0, 0)),
        (4, 2, 2, 2),
        (1, 4, 1, 2),
    ),
}

INDEX_OPS: dict[str, OpCase] = {
    "embedding": OpCase(EmbeddingOp(), (5, 4), (2, 3)),
    "embedding-padding": OpCase(EmbeddingOp(padding_index=1), (3, 4), (2, 4)),
}
"""Ops on indices: without a bias, and flipout refuses them."""

LAYERS: dict[type[layers.BayesLayer], type[nn.Module]] = {
    layers.Linear: nn.Linear,
    layers.Conv1d: nn.Conv1d,
    layers.Conv2d: nn.Conv2d,
    layers.Conv3d: nn.Conv3d,
    layers.ConvTranspose1d: nn.ConvTranspose1d,
    layers.ConvTranspose2d: nn.ConvTranspose2d,
    layers.ConvTranspose3d: nn.ConvTranspose3d,
}


INDEX_LAYERS: dict[type[layers.BayesLayer], type[nn.Module]] = {layers.Embedding: nn.Embedding}
"""Layers that take indices."""


def fresh(kind: type[layers.BayesLayer], *sizes: Any, **options: Any) -> layers.BayesLayer:
    """A new layer by the arguments of its own constructor, which differ from kind to kind."""
    build: Any = kind
    return build(*sizes, **options)


def perturbed(name: str, shape: tuple[int, ...], seed: int = 0) -> Posterior:
    """A float64 posterior with nothing special about it: every parameter is random."""
    torch.manual_seed(seed)
    posterior = POSTERIORS[name](torch.randn(shape, dtype=torch.float64))
    with torch.no_grad():
        for parameter in posterior.scale_parameters:
            value = posterior.get_parameter(parameter)
            value += 0.4 * torch.randn_like(value)
    return posterior


def bias_posterior(channels: int, seed: int = 100) -> Posterior:
    """A float64 posterior over a bias."""
    return perturbed("MeanField", (channels,), seed)


def layer(case: str, posterior: str, estimator: str, seed: int = 0) -> layers.BayesLayer:
    """A float64 layer with random posteriors over weight and bias."""
    op, shape = OPS[case].op, OPS[case].weight
    zeros = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape[0], dtype=torch.float64)
    result = layers.BayesLayer(
        op, *zeros, posterior=POSTERIORS[posterior], estimator=ESTIMATORS[estimator], bias_posterior=MeanField
    )
    result.weight, result.bias = perturbed(posterior, shape, seed), bias_posterior(shape[0], seed + 100)
    return result


def log_alpha_grid(start: float = -10.0, stop: float = 10.0, count: int = 81) -> tuple[Tensor, Tensor]:
    """Means and variances, float64, whose `ln alpha` runs over a grid."""
    log_alpha = torch.linspace(start, stop, count, dtype=torch.float64)
    mean = torch.full_like(log_alpha, 0.7)
    return mean, log_alpha.exp() * mean.square()


def over(option: str, members: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test over the names of members."""
    return pytest.mark.parametrize(option, list(members))


FACTORISED = [name for name, build in POSTERIORS.items() if build(torch.ones(4, 4)).factorised]
"""Posteriors that flipout takes."""

VALID_SAMPLERS = [
    (posterior, sampler)
    for posterior in POSTERIORS
    for sampler in SAMPLERS
    if sampler != "flipout" or posterior in FACTORISED
]
"""All valid pairs of a posterior and a sampling estimator."""

KINGMA_VALID = [name for name, build in POSTERIORS.items() if build(torch.ones(4, 4)).max_alpha <= 1]
"""Posteriors that Kingma's polynomial takes."""
