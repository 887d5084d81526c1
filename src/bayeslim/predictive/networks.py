"""Networks drawn from the posterior, a bounded number at a time, each for all examples of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.estimators import weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.draws import planned, realised, replaced
from bayeslim.predictive.inputs import per_example
from bayeslim.predictive.joint_outputs import draw_jointly
from bayeslim.predictive.prediction import Prediction, joined
from bayeslim.predictive.streaming import StreamingMoments
from bayeslim.predictive.vectorised import over_samples

__all__ = ["predict_by_networks", "predict_by_sampling", "together"]

ROWS_AT_ONCE = 8192
"""Networks times examples of one pass."""
EXAMPLES_AT_ONCE = 1024
"""Examples of a pass with one network; their activations stay in a processor's cache."""
IMAGES_AT_ONCE = 256
"""The same for examples that are not vectors, whose activations are larger."""
FEW_EXAMPLES = 16
"""Up to here a vectorised convolution of small kernels is faster than a loop on a CPU."""
EXAMPLES_JOINTLY = 64
"""Up to here outputs may be drawn instead of weights, for all examples at once."""
WEIGHTS_AT_ONCE = 2**22
"""Networks times weights in which they differ, of one pass (16 MiB in float32)."""
WEIGHTS_IN_CACHE = 2**19
"""As many such weights stay in the cache however many examples use them."""
ON_CUDA, SIZE_ON_CUDA, IMAGES_ON_CUDA = 32, 16, 4
"""Times as many on a GPU, which takes as long for few as for many; fewer of what needs the memory."""


def predict_by_sampling(
    model: nn.Module, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    r"""Predict a batch by `p(y | x) = (1/S) sum_s p(y | x, W_s)` with the estimators as they are set.

    A layer that draws weights draws them once per network, for all examples and all its calls. Where layers draw their
    outputs instead there are no weights to hold, and all `S` samples of a few examples run together: what they share,
    such as the first layer's mean and variance or plain layers in front, is computed once per example.

    For few examples linear layers that are set to `weight_sample` draw outputs where that is faster, jointly for all
    examples: the distribution is the same (see `planned`).

    Args:
        model: the network.
        x: a batch, with noise of its own where it is a `Gaussian`.
        likelihood: turns outputs into conditionals.
        samples: number of networks `S`.
        room: keep every sample as well while they are at most this many numbers.
    """
    few = len(x) <= min(EXAMPLES_JOINTLY, ROWS_AT_ONCE, _alone(x))
    plan = planned(model, x, samples, few)
    size = together(samples, plan.shapes, x) if plan.vectorises else 1
    if plan.draws_outputs:
        size = min(size, _times(ROWS_AT_ONCE, x, SIZE_ON_CUDA) // len(x))  # all examples are one block then

    def networks() -> Iterator[list[Tensor]]:
        for start in range(0, samples, size):
            index = torch.empty(min(size, samples - start), device=x.device)
            yield [index, *(draw.networks(len(index)) for draw in plan.ahead)]

    def run(block: Tensor | Gaussian, network: list[Tensor]) -> Tensor:
        drawn = zip(plan.ahead, network[1:], strict=True)
        with replaced([(draw.module, draw.method, partial(_given, value)) for draw, value in drawn]):
            return per_example(model(realised(block)))

    chosen = dict.fromkeys(plan.instead, weight_sample) | dict.fromkeys(plan.jointly, draw_jointly)
    with replaced([(layer, "estimator", estimator) for layer, estimator in chosen.items()]):
        return predict_by_networks(run, networks(), size, x, likelihood, room)


def predict_by_networks(
    run: Callable[[Any, Any], Tensor],
    networks: Iterable[Any],
    size: int,
    x: Tensor | Gaussian,
    likelihood: Likelihood,
    room: float,
    own: Callable[[int], Likelihood] | None = None,
) -> Prediction:
    """Run every block of a batch through one group of networks after the other, and accumulate their moments.

    Memory holds one group, the activations of `ROWS_AT_ONCE` examples and the moments of the batch, however many groups
    there are.

    Args:
        run: outputs for a block of `x`, by one network.
        networks: groups of networks, each as `over_samples` takes it.
        size: the most networks of a group.
        x: the batch.
        likelihood: turns outputs into conditionals.
        room: keep every sample as well while they are at most this many numbers.
        own: the likelihood of a network by its number, where they differ.
    """
    rows = _alone(x) if size == 1 else max(1, _times(ROWS_AT_ONCE, x, SIZE_ON_CUDA) // size)
    parts = [x] if size == 1 else _blocks(x, rows)  # moments of one network are few: all of the batch at once
    streams = [StreamingMoments(likelihood, room * len(part) / len(x), own) for part in parts]
    for group in networks:
        for part, stream in zip(parts, streams, strict=True):
            outputs = [over_samples(partial(run, block), group) for block in _blocks(part, rows)]
            stream.add(torch.cat(outputs, 1))
    return joined([stream.prediction() for stream in streams])


def together(samples: int, shapes: list[torch.Size], x: Tensor | Gaussian) -> int:
    """How many networks run together over the examples `x`, if they differ in weights of these shapes.

    As many as fit in a pass with all examples, or whose weights stay in the cache: large networks with many examples
    run one by one, which is faster there. On a CPU a kernel per network means a grouped convolution, which beats a
    loop only for small networks and few examples.
    """
    weights = max(1, sum(shape.numel() for shape in shapes))
    wanted = max(_times(ROWS_AT_ONCE, x, SIZE_ON_CUDA) // len(x), _times(WEIGHTS_IN_CACHE, x) // weights)
    if x.device.type == "cpu" and any(len(shape) > 2 for shape in shapes):
        wanted = WEIGHTS_IN_CACHE // weights if len(x) <= FEW_EXAMPLES else 1
    return max(1, min(samples, ROWS_AT_ONCE, wanted, _times(WEIGHTS_AT_ONCE, x, SIZE_ON_CUDA) // weights))


def _alone(x: Tensor | Gaussian) -> int:
    """How many examples run together through one network."""
    return _times(IMAGES_AT_ONCE, x, IMAGES_ON_CUDA) if x.ndim > 2 else _times(EXAMPLES_AT_ONCE, x)


def _times(limit: int, x: Tensor | Gaussian, more: int = ON_CUDA) -> int:
    """A limit where `x` is."""
    return limit * more if x.device.type == "cuda" else limit


def _blocks(x: Tensor | Gaussian, rows: int) -> list[Any]:
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def _given(value: Tensor, *_: object) -> Tensor:
    """In place of any method: what was drawn."""
    return value
