"""How a pass uses a network, found out once: which weights it draws, and which layers may draw outputs instead."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.estimators import Bias, independent_draws, mean_only, to_predict_by, weight_sample
from bayeslim.gaussian import Gaussian
from bayeslim.kernels.context import inside
from bayeslim.layers.base import BayesLayer
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.inputs import one_tensor, realised
from bayeslim.predictive.one_pass import check_whole
from bayeslim.predictive.passes import Attempt, over_samples, random_state
from bayeslim.runtime.swapping import swapped

__all__ = ["Plan", "Use", "estimators_of", "planned", "replanned"]

KINDS_AT_ONCE = 64
"""Kinds of inputs for which a network has plans at a time."""

Place = tuple[int, int]
"""A posterior: the number of its layer, and 0 for the weight or 1 for the bias."""


@dataclass(frozen=True)
class Use:
    """How a pass uses a layer that it calls once."""

    rows: int
    """Rows of its input for one example."""
    columns: int
    """Features of a row."""
    outputs: int
    """Features of an output."""
    vectors: bool
    """Whether the input has no axes but those of rows and features."""
    shared: bool
    """Whether all networks see the same input, as they do in a first layer."""


@dataclass(frozen=True)
class Plan:
    """What a pass through a network does; layers by their number among the Bayesian ones."""

    drawing: tuple[int, ...]
    """Layers whose weights are drawn, or whose outputs are."""
    weights: tuple[Place, ...]
    """Posteriors that are drawn for every network before it runs."""
    separate: tuple[int, ...]
    """Layers that draw every output on its own instead."""
    joint: dict[int, Use]
    """Linear layers that may draw the outputs for all examples jointly instead."""
    vectorises: bool
    """Whether `torch.vmap` can follow the network."""
    largest: int
    """Numbers of the largest output of a module for one example, or of all that are drawn one by one."""


@dataclass(frozen=True)
class _Plans:
    """The plans of a network, as long as it is what it was: weak references and plain facts keep nothing alive."""

    objects: list[Callable[[], Any]]
    facts: list[Any]
    by_kind: dict[Any, Plan]

    def still_hold(self, objects: list[Any], facts: list[Any]) -> bool:
        """Whether the network consists of the same objects, about which the same is true."""
        if facts != self.facts or len(objects) != len(self.objects):
            return False
        return all(known() is found for known, found in zip(self.objects, objects, strict=True))


_PLANS: weakref.WeakKeyDictionary[nn.Module, _Plans] = weakref.WeakKeyDictionary()


def estimators_of(layers: list[BayesLayer], forced: bool) -> list[Callable[..., Any]]:
    """What each layer samples by; those that are for training give way, unless they are asked for by `forced`."""
    own = [layer.estimator for layer in layers]
    return own if forced else [to_predict_by(estimator) for estimator in own]


def planned(model: nn.Module, x: Tensor | Gaussian, layers: list[BayesLayer], forced: bool) -> Plan:
    """How a pass uses the network for inputs like these: as it is known, or found out by a trial pass.

    A weight that is drawn ahead serves all passes and calls. Linear layers may draw outputs instead. Drawn one by one
    these are right for one vector per example and one use of the weight: a layer that sees several rows of one example,
    such as tokens that the network's own code has put into one batch, or whose weight is used twice in a pass, draws
    weights.

    A plan is kept as long as the network lives and nothing about it changes: modules, their types and modes,
    parameters, their types and places, estimators and hooks. What it cannot know is noticed in the pass itself, see
    `Unplanned`. Torch's random numbers are afterwards what they were before, so that a seed means the same whether or
    not there was a plan.

    Args:
        model: the network.
        x: a batch.
        layers: its Bayesian layers, in the order of `modules()`.
        forced: whether the estimators that are set are used whatever they are, see `estimators_of`.
    """
    objects, facts = _state(model, [part for layer in layers for part in (layer.estimator, layer.op)])
    known = _PLANS.get(model)
    if known is None or not known.still_hold(objects, facts):
        known = _PLANS[model] = _Plans([_weakly(found) for found in objects], facts, {})
    kind = _kind(x, forced)
    if kind not in known.by_kind:
        check_whole(model, "sample")
        if len(known.by_kind) == KINDS_AT_ONCE:
            known.by_kind.clear()
        restore = random_state(x.device)
        try:
            known.by_kind[kind] = _tried(model, x[:1], layers, estimators_of(layers, forced))
        finally:
            restore()
    return known.by_kind[kind]


def replanned(model: nn.Module, x: Tensor | Gaussian, layers: list[BayesLayer], forced: bool) -> Plan:
    """The plan in the place of one that a pass did not keep to: all weights are drawn, which any way may use."""
    plans, kind = _PLANS[model].by_kind, _kind(x, forced)
    plans[kind] = replace(plans[kind], weights=tuple(_places(layers).values()), separate=(), joint={})
    return plans[kind]


def _kind(x: Tensor | Gaussian, forced: bool) -> tuple[Any, ...]:
    return isinstance(x, Gaussian), x.dtype, x.device, x.shape[1:], forced


def _places(layers: list[BayesLayer]) -> dict[Posterior, Place]:
    """Where each posterior is found first."""
    found: dict[Posterior, Place] = {}
    for number, layer in enumerate(layers):
        for which, (posterior, _) in enumerate(layer.posteriors_and_priors()):
            found.setdefault(posterior, (number, which))
    return found


def _state(model: nn.Module, others: list[Any]) -> tuple[list[Any], list[Any]]:
    """What a plan depends on: objects, which must stay the same ones, and facts about them."""
    modules = list(model.modules())
    parameters = [tensor for module in modules for tensor in module._parameters.values() if tensor is not None]
    buffers = [tensor for module in modules for tensor in module._buffers.values() if tensor is not None]
    facts: list[Any] = [(tensor.dtype, tensor.device, tensor.shape) for tensor in (*parameters, *buffers)]
    for module in modules:
        hooks = *module._forward_pre_hooks, *module._forward_hooks
        facts.append((type(module), module.training, hooks, id(vars(module).get("forward"))))
    return [*modules, *parameters, *others], facts


def _weakly(found: Any) -> Callable[[], Any]:
    """A function that returns the object while it lives; for ever if its class knows no weak references."""
    try:
        return weakref.ref(found)
    except TypeError:
        return lambda: found


class _Trial:
    """What a pass through a network does, noted while it runs with the means for draws."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.draws: Counter[Posterior] = Counter()
        self.uses: dict[BayesLayer, Use] = {}
        self.calls = 0
        self.largest = 1

    def run(self, x: Tensor | Gaussian, networks: int) -> None:
        """Run so many networks; what the last of them does stays noted."""
        self.calls = 0
        over_samples(partial(self._output, x), torch.empty(networks, device=x.device))

    def _output(self, x: Tensor | Gaussian, _: Tensor) -> Tensor:
        self.calls += 1
        self.draws.clear()
        self.uses.clear()
        return one_tensor(self.model(realised(x)))

    def drawn(self, posterior: Posterior) -> Tensor:
        """In place of `rsample`."""
        self.draws[posterior] += 1
        return posterior.mean() + _nothing(posterior.mean())

    def seen(self, layer: BayesLayer, weight: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """In place of an estimator: as with weights by `drawn`, for less."""
        rows, columns = x.shape[:-1].numel(), x.shape[-1:].numel()
        self.uses[layer] = Use(rows, columns, len(weight.mean()), x.ndim <= 2, not inside.is_batchedtensor(x))
        self.draws.update(posterior for posterior, _ in layer.posteriors_and_priors())
        return mean_only(weight, op, x, bias) + _nothing(weight.mean())

    def noted(self, module: nn.Module, _: Any, output: Any) -> None:
        """A hook behind every module."""
        if isinstance(output, Tensor):
            self.largest = max(self.largest, output.numel())

    def may_draw_outputs(self, layer: BayesLayer) -> bool:
        """Whether outputs have a distribution of their own: the layer is called once, and nobody else uses its draw."""
        own = [posterior for posterior, _ in layer.posteriors_and_priors()]
        once = layer in self.uses and all(self.draws[posterior] == 1 and posterior.factorised for posterior in own)
        return once and isinstance(layer.op, LinearOp) and layer.op.numeric_input


def _tried(
    model: nn.Module, x: Tensor | Gaussian, layers: list[BayesLayer], estimators: list[Callable[..., Any]]
) -> Plan:
    """Run two networks for one example; one network if two are more than the device takes."""
    trial, places = _Trial(model), _places(layers)
    drawing = [number for number, own in enumerate(estimators) if own in (weight_sample, independent_draws)]
    noting: list[tuple[nn.Module, str, Any]] = [(found, "rsample", partial(trial.drawn, found)) for found in places]
    noting += [(layers[number], "estimator", partial(trial.seen, layers[number])) for number in drawing]
    hooks = [module.register_forward_hook(trial.noted) for module in model.modules()]
    try:
        with swapped(noting):
            with Attempt(x.device, final=False) as attempt:
                trial.run(x, 2)
            if attempt.refused:
                trial.run(x, 1)
    finally:
        for hook in hooks:
            hook.remove()
    separate: list[int] = []
    joint: dict[int, Use] = {}
    for number in [number for number in drawing if trial.may_draw_outputs(layers[number])]:
        use = trial.uses[layers[number]]
        if estimators[number] == independent_draws and use.vectors and use.rows == 1:
            separate.append(number)
        elif type(layers[number].op) is LinearOp:
            joint[number] = use
    weights = tuple(places[posterior] for posterior in trial.draws if places[posterior][0] not in separate)
    largest = max(trial.largest, sum(trial.uses[layers[number]].outputs for number in separate))
    return Plan(tuple(drawing), weights, tuple(separate), joint, trial.calls == 1, largest)


def _nothing(like: Tensor) -> Tensor:
    """A zero: to `torch.vmap` one of its own for every network."""
    return 0 * torch.randn((), dtype=like.dtype, device=like.device)
