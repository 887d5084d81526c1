"""Networks drawn from the posterior, a bounded number at a time, each for all examples of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as tree

from bayeslim.estimators import weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.draws import planned, realised
from bayeslim.predictive.inputs import per_example
from bayeslim.predictive.joint_outputs import draw_jointly
from bayeslim.predictive.passes import first_that_fits, halves
from bayeslim.predictive.prediction import Prediction, joined
from bayeslim.predictive.streaming import StreamingMoments
from bayeslim.predictive.vectorised import over_samples
from bayeslim.runtime.swapping import swapped

__all__ = ["in_blocks", "predict_by_networks", "predict_by_sampling", "together"]

ROWS_AT_ONCE = 8192
"""Networks times examples of one pass."""
NUMBERS_AT_ONCE = 2**24
"""Networks times examples times numbers of the largest activation of one pass (64 MiB in float32)."""
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
"""Times as many on a GPU, which takes as long for few as for many; fewer of what needs the memory.

For `NUMBERS_AT_ONCE` that is 1 GiB in float32, an eighth of the 2^31 numbers beyond which cuDNN and many kernels
refuse. A vectorised convolution is a grouped one, of `IMAGES_ON_CUDA` times `ROWS_AT_ONCE` groups times examples at
most: some kernels count these in 16 bits.
"""


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
    ways = [True, False] if few else [False]  # together they may be too many
    return first_that_fits(partial(_predict_as_planned, model, x, likelihood, samples, room), ways, x.device)[0]


def _predict_as_planned(
    model: nn.Module, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float, few: bool
) -> Prediction:
    """As `predict_by_sampling`; `few` says whether all examples may run together."""
    plan = planned(model, x, samples, few)
    size = together(samples, plan.shapes, x, plan.largest) if plan.vectorises else 1
    if plan.draws_outputs:
        size = max(1, min(size, _rows(x, plan.largest) // len(x)))  # all examples are one block then

    def drawn(count: int) -> list[Tensor]:
        return [torch.empty(count, device=x.device), *(draw.networks(count) for draw in plan.ahead)]

    def networks() -> Iterator[list[Tensor]]:
        left, most = samples, size
        while left:
            group, most = first_that_fits(drawn, halves(min(most, left)), x.device)
            left -= len(group[0])
            yield group

    def run(block: Tensor | Gaussian, network: list[Tensor]) -> Tensor:
        drawn = zip(plan.ahead, network[1:], strict=True)
        with swapped([(draw.module, draw.method, partial(_given, value)) for draw, value in drawn]):
            return per_example(model(realised(block)))

    chosen = dict.fromkeys(plan.instead, weight_sample) | dict.fromkeys(plan.jointly, draw_jointly)
    with swapped([(layer, "estimator", estimator) for layer, estimator in chosen.items()]):
        least = len(x) if plan.draws_outputs else 1
        return predict_by_networks(run, networks(), size, x, likelihood, room, largest=plan.largest, least=least)


def predict_by_networks(
    run: Callable[[Any, Any], Tensor],
    networks: Iterable[Any],
    size: int,
    x: Tensor | Gaussian,
    likelihood: Likelihood,
    room: float,
    own: Callable[[int], Likelihood] | None = None,
    largest: int = 1,
    least: int = 1,
) -> Prediction:
    """Run every block of a batch through one group of networks after the other, and accumulate their moments.

    Memory holds one group, the activations of `ROWS_AT_ONCE` examples and the moments of the batch, however many groups
    there are. A pass that the device refuses for its size is made again as two of half the size, first with fewer
    networks, then with fewer examples, and so are those after it. The networks stay as they were drawn; what layers
    draw in a pass is drawn as if it had been so small from the start.

    Args:
        run: outputs for a block of `x`, by one network.
        networks: groups of networks, each as `over_samples` takes it.
        size: the most networks of a group.
        x: the batch.
        likelihood: turns outputs into conditionals.
        room: keep every sample as well while they are at most this many numbers.
        own: the likelihood of a network by its number, where they differ.
        largest: numbers of an example's largest activation.
        least: how many networks times examples must run together.
    """
    rows = max(least, _alone(x, largest) if size == 1 else _rows(x, largest) // size)
    parts = [x] if size == 1 else _blocks(x, rows)  # moments of one network are few: all of the batch at once
    streams = [StreamingMoments(likelihood, room * len(part) / len(x), own) for part in parts]
    most = size * rows
    for group in networks:
        count = len(tree.tree_leaves(group)[0])
        for part, stream in zip(parts, streams, strict=True):
            wanted = min(most, count * min(rows, len(part)))
            outputs, fits = first_that_fits(partial(_outputs, run, part, group, rows), halves(wanted, least), x.device)
            stream.add(outputs)
            most = fits if fits < wanted else most
    return joined([stream.prediction() for stream in streams])


def _outputs(run: Callable[[Any, Any], Tensor], x: Tensor | Gaussian, group: Any, rows: int, most: int) -> Tensor:
    """Outputs of a group of networks, these first, in passes of so many rows and so many networks times examples."""
    rows = min(rows, len(x))
    count = len(tree.tree_leaves(group)[0])
    networks = max(1, min(count, most // rows))
    blocks = _blocks(x, min(rows, most))
    if networks == count:
        return torch.cat([over_samples(partial(run, block), group) for block in blocks], 1)
    some = [tree.tree_map(lambda t: t[i : i + networks], group) for i in range(0, count, networks)]  # noqa: B023
    return torch.cat([torch.cat([over_samples(partial(run, block), part) for block in blocks], 1) for part in some])


def in_blocks(model: nn.Module, x: Tensor | Gaussian) -> Any:
    """The output of a network for all examples of a batch, in blocks where the device refuses them together."""

    def blocks(rows: int) -> list[Any]:
        return [model(block) for block in _blocks(x, rows)]

    outputs, _ = first_that_fits(blocks, halves(len(x)), x.device)
    if len(outputs) == 1:
        return outputs[0]
    if all(isinstance(output, Gaussian) for output in outputs):
        mean, variance = (torch.cat([getattr(part, name) for part in outputs]) for name in ("loc", "variance"))
        return Gaussian.of(mean, variance, outputs[0].mode)
    return torch.cat([per_example(output) for output in outputs])


def together(samples: int, shapes: list[torch.Size], x: Tensor | Gaussian, largest: int = 1) -> int:
    """How many networks run together over the examples `x`, if they differ in weights of these shapes.

    As many as fit in a pass with all examples, or whose weights stay in the cache: large networks with many examples
    run one by one, which is faster there. On a CPU a kernel per network means a grouped convolution, which beats a
    loop only for small networks and few examples.
    """
    weights = max(1, sum(shape.numel() for shape in shapes))
    wanted = max(_rows(x, largest) // len(x), _times(WEIGHTS_IN_CACHE, x) // weights)
    if x.device.type == "cpu" and any(len(shape) > 2 for shape in shapes):
        wanted = WEIGHTS_IN_CACHE // weights if len(x) <= FEW_EXAMPLES else 1
    return max(1, min(samples, _rows(x, largest), wanted, _times(WEIGHTS_AT_ONCE, x, SIZE_ON_CUDA) // weights))


def _rows(x: Tensor | Gaussian, largest: int) -> int:
    """The most networks times examples of a pass, given the numbers of an example's largest activation."""
    count = _times(ROWS_AT_ONCE, x, SIZE_ON_CUDA if x.ndim <= 2 else IMAGES_ON_CUDA)
    return max(1, min(count, _times(NUMBERS_AT_ONCE, x, SIZE_ON_CUDA) // largest))


def _alone(x: Tensor | Gaussian, largest: int = 1) -> int:
    """How many examples run together through one network."""
    count = _times(IMAGES_AT_ONCE, x, IMAGES_ON_CUDA) if x.ndim > 2 else _times(EXAMPLES_AT_ONCE, x)
    return min(count, _rows(x, largest))


def _times(limit: int, x: Tensor | Gaussian, more: int = ON_CUDA) -> int:
    """A limit where `x` is."""
    return limit * more if x.device.type == "cuda" else limit


def _blocks(x: Tensor | Gaussian, rows: int) -> list[Any]:
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def _given(value: Tensor, *_: object) -> Tensor:
    """In place of any method: what was drawn."""
    return value
