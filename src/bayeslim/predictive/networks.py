"""Networks for a prediction, drawn from the posterior or read from snapshots: how many run together, and on what."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian
from bayeslim.layers.base import BayesLayer
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.average import Networks, average
from bayeslim.predictive.draws import JointOutputs, SeparateOutputs, Unplanned, Weights, pays
from bayeslim.predictive.inputs import per_example, realised
from bayeslim.predictive.one_pass import always_random, predict_by_one_pass
from bayeslim.predictive.passes import is_too_large, random_state
from bayeslim.predictive.plan import Plan, estimators_of, planned, replanned
from bayeslim.predictive.prediction import Prediction
from bayeslim.predictive.snapshots import Replay
from bayeslim.runtime.swapping import swapped

__all__ = ["predict_by_replay", "predict_by_sampling", "rows_at_once", "together"]

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


class Replayed(Networks):
    """Snapshots of a network."""

    def __init__(self, replay: Replay, x: Tensor) -> None:
        most = rows_at_once(x)
        size = together(replay.count, replay.shapes, x, most)
        super().__init__(size, _alone(x, most) if size == 1 else max(1, most // size))
        self.replay = replay

    def groups(self) -> Iterator[Any]:
        """See `Networks.groups`."""
        return self.replay.groups(self.together)

    def outputs(self, x: Any, network: tuple[Any, list[Tensor]]) -> Tensor:
        """See `Networks.outputs`."""
        return per_example(self.replay.outputs(x, network[0]))


class Sampled(Networks):
    """Networks drawn from the posterior.

    Args:
        model: the network.
        layers: its Bayesian layers.
        plan: how a pass uses them.
        x: the batch.
        samples: how many networks there are.
        whole: whether all examples may run together, so that outputs may be drawn jointly.
        parts: into how many parts passes are divided that are too large even so.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: list[BayesLayer],
        plan: Plan,
        x: Tensor | Gaussian,
        samples: int,
        whole: bool,
        parts: int,
    ) -> None:
        self.model, self.samples, self.device = model, samples, x.device
        joint = _drawn_jointly(plan, layers, x, samples) if whole and plan.vectorises else {}
        posteriors = [[posterior for posterior, _ in layer.posteriors_and_priors()] for layer in layers]
        drawn = [posteriors[number][which] for number, which in plan.weights if layers[number] not in joint]
        separate = [layers[number] for number in plan.separate]
        shapes = [*(shape for _, shape in joint.values()), *(found.mean().shape for found in drawn)]
        most = rows_at_once(x, plan.largest)
        size = together(samples, shapes, x, most) if plan.vectorises else 1
        if joint:
            size = max(1, min(size, most // len(x)))  # all examples are one block then
        rows = _alone(x, most) if size == 1 else max(1, most // size)
        least = len(x) if joint else 1
        super().__init__(max(1, size // parts), max(least, rows // parts), least)
        self.weights = Weights(drawn, self.together > 1)
        self.drawing: dict[BayesLayer, JointOutputs | SeparateOutputs] = {
            **{layer: JointOutputs(layer, rows) for layer, (rows, _) in joint.items()},
            **{layer: SeparateOutputs(layer) for layer in separate},
        }

    def methods(self, layers: list[BayesLayer], drawing: tuple[int, ...]) -> list[tuple[nn.Module, str, Any]]:
        """What stands in for methods of the network's modules while it runs."""
        found: list[tuple[nn.Module, str, Any]] = []
        for layer in layers:
            for posterior, _ in layer.posteriors_and_priors():
                found.append((posterior, "rsample", partial(self.weights.__getitem__, posterior)))
        for layer in [layers[number] for number in drawing]:
            found.append((layer, "estimator", self.drawing.get(layer, self.weights.estimate)))
        return found

    def groups(self) -> Iterator[list[Tensor]]:
        """See `Networks.groups`."""
        for start in range(0, self.samples, self.together):
            count = min(self.together, self.samples - start)
            yield [torch.empty(count, device=self.device), *self.weights.draw(count)]

    def noise(self, count: int, examples: int) -> list[Tensor]:
        """See `Networks.noise`."""
        return [layer.draw(count, examples) for layer in self.drawing.values()]

    def outputs(self, x: Any, network: tuple[list[Tensor], list[Tensor]]) -> Tensor:
        """See `Networks.outputs`."""
        self.weights.hold(network[0][1:])
        for outputs, noise in zip(self.drawing.values(), network[1], strict=True):
            outputs.hold(noise)
        return per_example(self.model(realised(x)))


def predict_by_sampling(
    model: nn.Module, forced: bool, x: Tensor | Gaussian, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    r"""Predict a batch by `p(y | x) = (1/S) sum_s p(y | x, W_s)` with the estimators as they are set.

    A layer that draws weights draws them once per network, for all examples and all its calls. Where layers draw their
    outputs instead there are no weights to hold, and all `S` samples of a few examples run together: what they share,
    such as the first layer's mean and variance or plain layers in front, is computed once per example.

    For few examples linear layers that are set to `weight_sample` draw outputs where that is faster, jointly for all
    examples: the distribution is the same (see `JointOutputs`). All that is drawn here is drawn before a pass.

    Args:
        model: the network; one without anything random is run once.
        forced: whether the estimators that are set are used whatever they are, also those for training.
        x: a batch, with noise of its own where it is a `Gaussian`.
        likelihood: turns outputs into conditionals.
        samples: number of networks `S`.
        room: keep every sample as well while they are at most this many numbers.
    """
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    if not (layers or isinstance(x, Gaussian) or always_random(model)):
        return predict_by_one_pass(model, x, likelihood, samples, room)
    plan = planned(model, x, layers, forced)
    whole, parts = len(x) <= EXAMPLES_JOINTLY, 1
    restore = random_state(x.device)
    while True:
        networks = Sampled(model, layers, plan, x, samples, whole, parts)
        try:
            with swapped(networks.methods(layers, plan.drawing)):
                return average(networks, x, likelihood, room)
        except Unplanned:
            plan = replanned(model, x, layers, forced)
        except (RuntimeError, MemoryError) as error:  # of what is drawn before a pass, or of all examples together
            if not is_too_large(error) or networks.most == 1:
                raise
            whole, parts = False, parts if whole else 2 * parts
        restore()


def predict_by_replay(
    replay: Replay, forced: bool, x: Tensor, likelihood: Likelihood, samples: int, room: float
) -> Prediction:
    """Predict a batch by the average over snapshots, each with its own likelihood where that has parameters."""
    layers = [module for module in replay.snapshots.model.modules() if isinstance(module, BayesLayer)]
    own = partial(replay.likelihood, likelihood) if any(True for _ in likelihood.parameters()) else None
    with swapped((layer, "estimator", of) for layer, of in zip(layers, estimators_of(layers, forced), strict=True)):
        return average(Replayed(replay, x), x, likelihood, room, own)


def _drawn_jointly(
    plan: Plan, layers: list[BayesLayer], x: Tensor | Gaussian, samples: int
) -> dict[BayesLayer, tuple[int, torch.Size]]:
    """Layers for which outputs are cheaper than weights: rows of their inputs, and what one network takes."""
    found: dict[BayesLayer, tuple[int, torch.Size]] = {}
    for number, use in plan.joint.items():
        layer, rows = layers[number], len(x) * use.rows
        if rows > 1 and x.device.type != "cpu":
            continue  # normal numbers are cheap
        if use.shared and pays(rows, use.columns, use.outputs, samples):
            found[layer] = rows, torch.Size([rows * use.outputs])
        elif pays(rows, use.columns, use.outputs, 1):
            found[layer] = rows, torch.Size([rows**2 * max(use.columns, use.outputs)])
    return found


def together(samples: int, shapes: list[torch.Size], x: Tensor | Gaussian, most: int) -> int:
    """How many networks run together over the examples `x`, if they differ in weights of these shapes.

    As many as fit in a pass of `most` networks times examples, or whose weights stay in the cache: large networks with
    many examples run one by one, which is faster there. On a CPU a kernel per network means a grouped convolution,
    which beats a loop only for small networks and few examples.
    """
    weights = max(1, sum(shape.numel() for shape in shapes))
    wanted = max(most // len(x), _times(WEIGHTS_IN_CACHE, x) // weights)
    if x.device.type == "cpu" and any(len(shape) > 2 for shape in shapes):
        wanted = WEIGHTS_IN_CACHE // weights if len(x) <= FEW_EXAMPLES else 1
    return max(1, min(samples, most, wanted, _times(WEIGHTS_AT_ONCE, x, SIZE_ON_CUDA) // weights))


def rows_at_once(x: Tensor | Gaussian, largest: int = 1) -> int:
    """The most networks times examples of a pass, given the numbers of an example's largest activation."""
    count = _times(ROWS_AT_ONCE, x, SIZE_ON_CUDA if x.ndim <= 2 else IMAGES_ON_CUDA)
    return max(1, min(count, _times(NUMBERS_AT_ONCE, x, SIZE_ON_CUDA) // largest))


def _alone(x: Tensor | Gaussian, most: int) -> int:
    """How many examples run through one network at once."""
    return min(most, _times(IMAGES_AT_ONCE, x, IMAGES_ON_CUDA) if x.ndim > 2 else _times(EXAMPLES_AT_ONCE, x))


def _times(limit: int, x: Tensor | Gaussian, more: int = ON_CUDA) -> int:
    """A limit where `x` is."""
    return limit * more if x.device.type == "cuda" else limit
