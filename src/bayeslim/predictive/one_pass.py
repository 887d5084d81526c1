"""Predictions by a single pass: of the mean network, or of means and variances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.divergence import is_sharded
from bayeslim.gaussian import Gaussian
from bayeslim.kernels.noise import normals
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.average import StreamingMoments, blocks_of
from bayeslim.predictive.inputs import per_example
from bayeslim.predictive.passes import Attempt
from bayeslim.predictive.prediction import Prediction

__all__ = ["always_random", "check_whole", "predict_by_moments", "predict_by_one_pass"]

OUTPUTS_AT_ONCE = 2**20
"""Samples times outputs that are drawn from propagated moments at once."""


def predict_by_one_pass(
    model: nn.Module, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    """Predict a batch by a network without anything random, as a single sample."""
    stream = StreamingMoments(likelihood, room)
    stream.add(per_example(_in_blocks(model, x))[None])
    return stream.prediction()


def predict_by_moments(
    model: nn.Module, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    """Predict a batch by the mean and variance of its outputs, with estimators that propagate them.

    Args:
        model: the network.
        x: a batch.
        likelihood: turns outputs into conditionals.
        samples: outputs that are drawn where the likelihood has no closed form over Gaussian ones.
        room: keep these while they are at most this many numbers.
    """
    output = _in_blocks(model, x)
    if not isinstance(output, Gaussian):
        raise ValueError(
            "a prediction by moments needs something uncertain: a Bayesian layer, or `input_variance`; for a plain "
            "pass use method='mean'"
        )
    per_example(output.loc)
    exact = likelihood.exact_moments(output)
    if exact is None:
        stream = StreamingMoments(likelihood, room)
        size = max(1, min(samples, OUTPUTS_AT_ONCE // output.numel()))  # by sizes alone: a seed means the same draws
        for start in range(0, samples, size):
            shape = (min(size, samples - start), *output.shape)
            stream.add(output.loc + output.scale * normals(shape, output.loc))
        return stream.prediction()
    mean, epistemic, aleatoric = exact
    entropy = likelihood.predictive_entropy(mean, epistemic + aleatoric)
    information = entropy - likelihood.predictive_entropy(mean, aleatoric)
    return Prediction(mean, epistemic, aleatoric, entropy, information, likelihood)


def check_whole(model: nn.Module, method: str) -> None:
    """Raise a ValueError for a network that is spread over processes, whose weights nobody has."""
    if is_sharded(model):
        raise ValueError(
            f"a sharded network cannot be predicted with method={method!r}: do it in `with unsharded(model):`, on all "
            "processes, or use method='mean'"
        )


def always_random(model: nn.Module) -> bool:
    """Whether a module draws noise that no estimator switches off."""
    return any(getattr(module, "always_random", False) for module in model.modules())


def _in_blocks(model: nn.Module, x: Tensor | Gaussian) -> Any:
    """The output of a network for all examples of a batch, in blocks where the device refuses them together."""
    rows, outputs = len(x), []
    while not outputs:
        with Attempt(x.device, final=rows == 1):
            outputs = [model(block) for block in blocks_of(x, rows)]
        rows //= 2
    if len(outputs) == 1:
        return outputs[0]
    if all(isinstance(output, Gaussian) for output in outputs):
        mean, variance = (torch.cat([getattr(part, name) for part in outputs]) for name in ("loc", "variance"))
        return Gaussian.of(mean, variance, outputs[0].mode)
    return torch.cat([per_example(output) for output in outputs])
