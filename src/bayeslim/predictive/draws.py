"""What the networks of a prediction draw: weights, or outputs where that is faster."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.estimators import Bias, independent_draws, mean_only, weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.kernels.context import inside
from bayeslim.kernels.noise import normals
from bayeslim.layers.base import BayesLayer
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.inputs import one_tensor
from bayeslim.predictive.joint_outputs import JointOutputs, pays
from bayeslim.predictive.passes import first_that_fits, random_state
from bayeslim.predictive.vectorised import over_samples
from bayeslim.runtime.swapping import swapped

__all__ = ["Draw", "Plan", "planned", "realised"]


@dataclass(frozen=True)
class Draw:
    """Something a network draws before it runs: a weight, or the outputs of a layer."""

    module: nn.Module
    method: str
    """The method of the module that returns it while the network runs."""
    shape: torch.Size
    networks: Callable[[int], Tensor]
    """Draws for so many networks, these first."""


@dataclass(frozen=True)
class Plan:
    """How to draw networks for a batch."""

    ahead: list[Draw]
    jointly: dict[BayesLayer, torch.Size]
    """Layers that draw outputs while the network runs, and how many numbers that takes."""
    vectorises: bool
    """Whether `torch.vmap` can follow the network."""
    largest: int = 1
    """Numbers of the largest output of a module for one example."""
    instead: tuple[BayesLayer, ...] = ()
    """Layers set to `independent_draws` that must draw weights in this network, see `planned`."""

    @property
    def shapes(self) -> list[torch.Size]:
        """What one network holds."""
        return [*(draw.shape for draw in self.ahead), *self.jointly.values()]

    @property
    def draws_outputs(self) -> bool:
        """Whether layers draw outputs: then all examples must run together, as their outputs depend on each other."""
        return bool(self.jointly) or any(isinstance(draw.module, BayesLayer) for draw in self.ahead)


def planned(model: nn.Module, x: Tensor | Gaussian, samples: int, few: bool) -> Plan:
    """Find out by a trial pass what a network draws, and choose between weights and outputs.

    A weight that is drawn ahead serves all passes and calls. A linear layer that is called once can draw its outputs
    for all examples instead, where that is faster: ahead as well if its input is the same in all networks, as that of
    the first layer is, and otherwise when the network runs. Their joint distribution is the same.

    Outputs that are drawn independently are right for one vector per example and one use of the weight. A layer that
    sees several rows of one example, such as tokens that the network's own code has put into one batch, or whose weight
    is used twice in a pass, draws weights instead. Torch's random numbers are afterwards what they were before.

    Args:
        model: the network, with the estimators as they are set.
        x: the batch.
        samples: how many networks there will be.
        few: whether all examples can run together, so that outputs may be drawn.
    """
    restore = random_state(x.device)
    try:
        return _found_out(model, x, samples, few)
    finally:
        restore()


def _found_out(model: nn.Module, x: Tensor | Gaussian, samples: int, few: bool) -> Plan:
    """As `planned`, at the cost of random numbers."""
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    instead = _dependent(model, layers, x[:1])
    if instead:
        with swapped([(layer, "estimator", weight_sample) for layer in instead]):
            return replace(_found_out(model, x, samples, few), instead=tuple(instead))
    linear = [layer for layer in layers if layer.estimator is weight_sample and _is_factorised_linear(layer)]
    trial = _tried(model, layers, linear, x if few and linear else x[:1])
    weights = dict.fromkeys(trial.draws)
    ahead: list[Draw] = []
    jointly: dict[BayesLayer, torch.Size] = {}
    for layer, (shared, shape) in trial.inputs.items() if few and trial.vectorises else ():
        own = [posterior for posterior, _ in layer.posteriors_and_priors()]
        rows, columns, outputs = shape[:-1].numel(), shape[-1], len(layer.weight.mean())
        if any(trial.draws[posterior] > 1 for posterior in own) or (rows > 1 and x.device.type != "cpu"):
            continue  # something else depends on the same draw; or normal numbers are cheap
        if shared is not None and pays(rows, columns, outputs, samples):
            joint = JointOutputs(layer.weight, layer.op, shared, layer.bias)
            ahead.append(Draw(layer, "estimator", torch.Size([joint.mean.numel()]), joint.draw))
        elif pays(rows, columns, outputs, 1):
            jointly[layer] = torch.Size([rows**2 * max(columns, outputs)])
        else:
            continue
        for posterior in own:
            del weights[posterior]
    return Plan([*ahead, *map(_weights, weights)], jointly, trial.vectorises, trial.largest)


def realised(x: Tensor | Gaussian) -> Tensor:
    """The inputs, drawn where they are uncertain."""
    return x.rsample() if isinstance(x, Gaussian) else x


def _dependent(model: nn.Module, layers: list[BayesLayer], example: Tensor | Gaussian) -> list[BayesLayer]:
    """Layers set to `independent_draws` whose outputs depend on each other beyond that, found by a pass."""
    noted = [layer for layer in layers if layer.estimator is independent_draws]
    if not noted:
        return []
    uses: Counter[Posterior] = Counter()
    rows: Counter[BayesLayer] = Counter()

    def seen(layer: BayesLayer, weight: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        uses.update([weight])
        rows[layer] = max(rows[layer], len(x) if x.ndim > 1 else 1)
        return mean_only(weight, op, x, bias)

    with swapped([(layer, "estimator", partial(seen, layer)) for layer in noted]):
        model(realised(example))
    return [layer for layer in noted if rows[layer] > 1 or uses[layer.weight] > 1]


@dataclass(frozen=True)
class _Trial:
    draws: Counter[Posterior]
    """How often a pass draws from each posterior."""
    inputs: dict[BayesLayer, tuple[Tensor | None, torch.Size]]
    """What linear layers see, if all networks share it, and its shape."""
    vectorises: bool
    largest: int
    """Numbers of the largest output of a module for one example."""


def _tried(model: nn.Module, layers: list[BayesLayer], linear: list[BayesLayer], x: Tensor | Gaussian) -> _Trial:
    """Run two networks, whose draws are the means; one if two are more than the device takes for a single example."""
    draws: Counter[Posterior] = Counter()
    inputs: dict[BayesLayer, tuple[Tensor | None, torch.Size]] = {}
    calls = largest = 0

    def drawn(posterior: Posterior) -> Tensor:
        draws[posterior] += 1
        return posterior.mean() + _nothing(posterior.mean())

    def seen(layer: BayesLayer, weight: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        differs = inside.is_batchedtensor(x)
        inputs[layer] = (None if differs else x, x.shape)
        draws.update(posterior for posterior, _ in layer.posteriors_and_priors())
        return mean_only(weight, op, x, bias) + _nothing(weight.mean())  # the same as with drawn weights, for less

    def run(_: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return one_tensor(model(realised(x)))

    def noted(module: nn.Module, _: Any, output: Any) -> None:
        nonlocal largest
        if module in modules and isinstance(output, Tensor):
            largest = max(largest, output.numel())

    def tried(networks: int) -> None:
        nonlocal calls
        draws.clear()
        calls = 0
        over_samples(run, torch.empty(networks, device=x.device))

    modules = set(model.modules())
    posteriors = {posterior: None for layer in layers for posterior, _ in layer.posteriors_and_priors()}
    noting = [(posterior, "rsample", partial(drawn, posterior)) for posterior in posteriors]
    hook = nn.modules.module.register_module_forward_hook(noted)
    try:
        with swapped([*noting, *((layer, "estimator", partial(seen, layer)) for layer in linear)]):
            _, networks = first_that_fits(tried, [2, 1] if len(x) == 1 else [2], x.device)
    finally:
        hook.remove()
    return _Trial(draws, inputs, networks == 1 or calls == 1, math.ceil(largest / len(x)) or 1)


def _nothing(like: Tensor) -> Tensor:
    """A zero: to `torch.vmap` one of its own for every network."""
    return 0 * torch.randn((), dtype=like.dtype, device=like.device)


def _is_factorised_linear(layer: BayesLayer) -> bool:
    return isinstance(layer.op, LinearOp) and layer.op.numeric_input and layer.weight.factorised


def _weights(posterior: Posterior) -> Draw:
    mean = posterior.mean().detach()
    std = posterior.variance().detach().sqrt().to(mean.dtype) if posterior.factorised else None

    def networks(count: int) -> Tensor:
        if std is None:
            return over_samples(lambda _: posterior.rsample(), torch.empty(count, device=mean.device))
        noise = normals((count, *mean.shape), mean)
        return torch.addcmul(mean, std, noise, out=noise)

    return Draw(posterior, "rsample", mean.shape, networks)
