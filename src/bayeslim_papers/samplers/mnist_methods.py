"""The methods of the samplers experiment: each trains a LeNet and gives what it predicts by, and one plain network."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.baselines import SparseMomentum, deep_ensemble, keep_dropout_
from bayeslim.optim import CVAdam
from bayeslim.predictive import Snapshots
from bayeslim.randomness import seeded
from bayeslim.schedules import cosine_cycles
from bayeslim_papers.samplers.cycles import Cycles, Masks

if TYPE_CHECKING:
    from bayeslim_papers.samplers.mnist import SamplersMnist

__all__ = ["METHODS", "PRUNED", "Data", "Outcome"]

Data = tuple[Tensor, Tensor]

PRUNED = {
    "dfp-90": Masks(0.90),
    "dfp-95": Masks(0.95),
    "dfp-98": Masks(0.98),
    "dpf-95": Masks(0.95, feedback=True),
    "dfp-90-units": Masks(0.90, group="input_unit"),
}
"""Whole units go no further than 90 %."""


class Outcome(NamedTuple):
    """What a method gives."""

    whole: nn.Module | Snapshots
    """All it knows: the snapshots, members or posterior."""
    single: nn.Module
    """One plain network."""


def fresh(seed: int, device: torch.device) -> nn.Sequential:
    """The network, initialised by the seed."""
    with seeded(seed):
        return bl.models.lenet5_caffe().to(device)


def fitted(config: SamplersMnist, model: nn.Module, data: Data, seed: int, **options: Any) -> nn.Module:
    """Train in place, with what all methods share."""
    common: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": config.epochs, "batch_size": config.batch_size}
    bl.fit(model, data, seed=seed, progress=False, **(common | options))
    return model


def by_sgd(
    config: SamplersMnist, model: nn.Module, data: Data, seed: int, sparse: SparseMomentum | None = None
) -> nn.Module:
    """Momentum 0.9 and a cosine to 0; `sparse` takes part where given."""

    def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        sgd = torch.optim.SGD(groups, config.sgd_lr, momentum=0.9, weight_decay=config.weight_decay)
        return sgd if sparse is None else sparse.attach(sgd)

    hook = None if sparse is None else sparse.after_epoch
    return fitted(config, model, data, seed, optimizer=optimizer, lr_schedule=cosine_cycles(1), after_epoch=hook)


def by_cv_adam(config: SamplersMnist, data: Data, seed: int, masks: Masks | None = None) -> Outcome:
    """Cycles of CV-Adam with snapshots: of all cycles, or where it prunes on the way of the last one."""
    model = fresh(seed, data[0].device)
    cycles = Cycles(config.epochs, config.cycles, config.per_cycle, 0, config.spike_decay, config.soft_threshold)
    pruner = cycles.pruner(model, masks) if masks else None
    snapshots, after_epoch = cycles.followed(model, pruner)

    def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        own: dict[str, Any] = {"temperature": config.temperature, "weight_decay": config.weight_decay}
        sampler = CVAdam(groups, num_data=len(data[0]), lr=config.cv_lr, seed=seed, **own)
        return pruner.attach(sampler) if pruner else sampler

    schedule = cosine_cycles(config.cycles)
    fitted(config, model, data, seed, optimizer=optimizer, lr_schedule=schedule, after_epoch=after_epoch)
    return Outcome(snapshots, model)


def sgd(config: SamplersMnist, data: Data, seed: int) -> Outcome:
    """One network."""
    model = by_sgd(config, fresh(seed, data[0].device), data, seed)
    return Outcome(model, model)


def ensemble(config: SamplersMnist, data: Data, seed: int) -> Outcome:
    """Independent networks."""
    whole = deep_ensemble(
        lambda: bl.models.lenet5_caffe().to(data[0].device),
        lambda model, own: by_sgd(config, model, data, own),
        members=config.members,
        seed=seed,
    )
    return Outcome(whole, whole.model)


def vi(config: SamplersMnist, data: Data, seed: int) -> Outcome:
    """Mean-field variational inference with an ARD prior; the KL comes in over the second quarter of the epochs."""
    model = bl.bayesianize_(fresh(seed, data[0].device), prior=bl.priors.ARD(), estimator=bl.local_reparam)
    quarter = config.epochs // 4
    rates, weights = bl.schedules.constant_then_linear(0.5), bl.schedules.warmup_linear(quarter, quarter)
    fitted(config, model, data, seed, lr=config.vi_lr, lr_schedule=rates, kl_schedule=weights)
    single = copy.deepcopy(model)
    bl.prune_(single)
    return Outcome(model, bl.collapse_(single))


def mc_dropout(config: SamplersMnist, data: Data, seed: int) -> Outcome:
    """Dropout before the last layer."""
    *body, head = fresh(seed, data[0].device)
    model = by_sgd(config, nn.Sequential(*body, nn.Dropout(config.dropout), head), data, seed)
    return Outcome(keep_dropout_(copy.deepcopy(model)), model)


def sparse_momentum(config: SamplersMnist, data: Data, seed: int) -> Outcome:
    """5 % of the weights throughout."""
    model = fresh(seed, data[0].device)
    sparse = SparseMomentum(model, density=0.05, epochs=config.epochs, seed=seed)
    by_sgd(config, model, data, seed, sparse)
    return Outcome(model, model)


METHODS: dict[str, Callable[[SamplersMnist, Data, int], Outcome]] = {
    "sgd": sgd,
    "ensemble": ensemble,
    "cvadam": by_cv_adam,
    "vi": vi,
    "mc-dropout": mc_dropout,
    **{name: functools.partial(by_cv_adam, masks=masks) for name, masks in PRUNED.items()},
    "sm-95": sparse_momentum,
}
"""Method by name."""
