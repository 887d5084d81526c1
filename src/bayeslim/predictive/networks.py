"""Networks drawn from the posterior, a bounded number at a time, each for all examples of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.estimators import independent_draws, weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.prediction import Prediction, joined
from bayeslim.predictive.streaming import StreamingMoments
from bayeslim.predictive.vectorised import over_samples

__all__ = ["predict_by_networks", "predict_by_sampling", "together"]

ROWS_AT_ONCE = 4096
"""Networks times examples of one pass."""
EXAMPLES_AT_ONCE = 1024
"""Examples of a pass with one network; their activations stay in a processor's cache."""
IMAGES_AT_ONCE = 256
"""The same for examples that are not vectors, whose activations are larger."""
FEW_EXAMPLES = 16
"""Up to here a vectorised convolution of small kernels is faster than a loop on a CPU."""
WEIGHTS_AT_ONCE = 2**21
"""Networks times weights in which they differ, of one pass (8 MiB in float32)."""
WEIGHTS_IN_CACHE = 2**19
"""As many such weights stay in the cache however many examples use them."""


def predict_by_sampling(
    model: nn.Module, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    r"""Predict a batch by `p(y | x) = (1/S) sum_s p(y | x, W_s)` with the estimators as they are set.

    A layer that draws weights draws them once per network, for all examples and all its calls. Where layers draw their
    outputs instead there are no weights to hold, and all `S` samples of a few examples run together: what they share,
    such as the first layer's mean and variance or plain layers in front, is computed once per example.

    For a single example a linear layer draws its output even if it is set to `weight_sample`: the distribution is the
    same, and the noise is one number per output instead of one per weight.

    Args:
        model: the network.
        x: a batch, with noise of its own where it is a `Gaussian`.
        likelihood: turns outputs into conditionals.
        samples: number of networks `S`.
        room: keep every sample as well while they are at most this many numbers.
    """
    draws, vectorises = draws_of_a_pass(model, x)
    alone = draws if len(x) == 1 and vectorises else Counter[Posterior]()
    with _drawing_outputs(model, alone):
        drawing = list(draws_of_a_pass(model, x)[0] if alone else draws)
        size = together(samples, [q.mean().shape for q in drawing], x) if vectorises else 1

        def networks() -> Iterator[list[Tensor]]:
            for start in range(0, samples, size):
                index = torch.empty(min(size, samples - start), device=x.device)
                yield [index, *(over_samples(lambda _, q=posterior: q.rsample(), index) for posterior in drawing)]

        def run(block: Tensor | Gaussian, network: list[Tensor]) -> Tensor:
            with _rsampling({q: partial(_same, weight) for q, weight in zip(drawing, network[1:], strict=True)}):
                return model(_certain(block))

        return predict_by_networks(run, networks(), size, x, likelihood, room)


def predict_by_networks(
    run: Callable[[Any, Any], Tensor],
    networks: Iterable[Any],
    size: int,
    x: Tensor | Gaussian,
    likelihood: Likelihood,
    room: float,
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
    """
    alone = IMAGES_AT_ONCE if x.ndim > 2 else EXAMPLES_AT_ONCE
    rows = alone if size == 1 else max(1, ROWS_AT_ONCE // size)
    parts = [x] if size == 1 else _blocks(x, rows)  # moments of one network are few: all of the batch at once
    streams = [StreamingMoments(likelihood, room * len(part) / len(x)) for part in parts]
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
    wanted = max(ROWS_AT_ONCE // len(x), WEIGHTS_IN_CACHE // weights)
    if x.device.type == "cpu" and any(len(shape) > 2 for shape in shapes):
        wanted = WEIGHTS_IN_CACHE // weights if len(x) <= FEW_EXAMPLES else 1
    return max(1, min(samples, ROWS_AT_ONCE, wanted, WEIGHTS_AT_ONCE // weights))


def draws_of_a_pass(model: nn.Module, x: Tensor | Gaussian) -> tuple[Counter[Posterior], bool]:
    """How often a pass draws from which posteriors, and whether `torch.vmap` can follow: tried on one example."""
    draws: Counter[Posterior] = Counter()
    calls = 0

    def noted(posterior: Posterior, rsample: Callable[[], Tensor]) -> Tensor:
        draws[posterior] += 1
        return rsample()

    def run(_: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return model(_certain(x[:1]))

    posteriors = [posterior for layer in _layers(model) for posterior, _ in layer.posteriors_and_priors()]
    with _rsampling({posterior: partial(noted, posterior, posterior.rsample) for posterior in posteriors}):
        over_samples(run, torch.empty(2, device=x.device))
    return draws, calls == 1


@contextmanager
def _drawing_outputs(model: nn.Module, draws: Counter[Posterior]) -> Iterator[None]:
    """Let linear layers on vectors draw outputs, where a pass draws their weights once."""
    layers = [
        layer
        for layer in _layers(model)
        if layer.estimator is weight_sample
        and layer.weight.factorised
        and all(draws[posterior] == 1 for posterior, _ in layer.posteriors_and_priors())
    ]
    try:
        for layer in layers:
            layer.estimator = independent_draws
        yield
    finally:
        for layer in layers:
            layer.estimator = weight_sample


@contextmanager
def _rsampling(by: dict[Posterior, Callable[[], Tensor]]) -> Iterator[None]:
    """Let every posterior in `by` draw by the function there; their own method comes back at the end."""
    try:
        for posterior, rsample in by.items():
            object.__setattr__(posterior, "rsample", rsample)  # an instance's attribute goes before its class's method
        yield
    finally:
        for posterior in by:
            vars(posterior).pop("rsample", None)


def _blocks(x: Tensor | Gaussian, rows: int) -> list[Any]:
    return [x[start : start + rows] for start in range(0, len(x), rows)]


def _layers(model: nn.Module) -> list[BayesLayer]:
    return [module for module in model.modules() if isinstance(module, BayesLayer)]


def _same(weight: Tensor) -> Tensor:
    return weight


def _certain(x: Tensor | Gaussian) -> Tensor:
    return x.rsample() if isinstance(x, Gaussian) else x
