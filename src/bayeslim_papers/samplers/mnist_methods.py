"""The methods of the samplers experiment: each trains a LeNet and gives what it predicts by, and one plain network."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.baselines import SparseMomentum, deep_ensemble, keep_dropout_
from bayeslim.optim import CVAdam
from bayeslim.optim.groups import Group
from bayeslim.optim.sparsity_target import SparsityTarget
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.predictive import Snapshots
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Progress, cosine_cycles, sampling_epochs

__all__ = ["METHODS", "Config", "Data", "Outcome"]

Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Pruning:
    """What a pruned method asks for."""

    sparsity: float
    feedback: bool = False
    group: Group = "weight"


PRUNED = {
    "dfp-90": Pruning(0.90),
    "dfp-95": Pruning(0.95),
    "dfp-98": Pruning(0.98),
    "dpf-95": Pruning(0.95, feedback=True),
    "dfp-90-units": Pruning(0.90, group="input_unit"),
}
"""Whole units go no further than 90 %."""


@dataclass(frozen=True)
class Config:
    """Settings."""

    methods: tuple[str, ...] = ("sgd", "ensemble", "cvadam", "vi", "mc-dropout", *PRUNED, "sm-95")
    seeds: tuple[int, ...] = (0,)
    epochs: int = 20
    batch_size: int = 128
    sgd_lr: float = 0.05
    weight_decay: float = 5e-4
    members: int = 4
    cv_lr: float = 0.3
    temperature: Literal["posterior", "cold"] = "cold"
    cycles: int = 4
    per_cycle: int = 3
    spike_decay: float = 1e-3
    soft_threshold: float = 1e-4
    vi_lr: float = 1e-3
    dropout: float = 0.5
    samples: int = 100

    @property
    def last_cycle(self) -> int:
        """Epochs before the last cycle (where `cycles` divides them): the masks are final after them."""
        return self.epochs - math.ceil(self.epochs / self.cycles)


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


def fitted(config: Config, model: nn.Module, data: Data, seed: int, **options: Any) -> nn.Module:
    """Train in place, with what all methods share."""
    common: dict[str, Any] = {"likelihood": bl.Categorical(), "epochs": config.epochs, "batch_size": config.batch_size}
    bl.fit(model, data, seed=seed, progress=False, **(common | options))
    return model


def by_sgd(config: Config, model: nn.Module, data: Data, seed: int, sparse: SparseMomentum | None = None) -> nn.Module:
    """Momentum 0.9 and a cosine to 0; `sparse` takes part where given."""

    def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        sgd = torch.optim.SGD(groups, config.sgd_lr, momentum=0.9, weight_decay=config.weight_decay)
        return sgd if sparse is None else sparse.attach(sgd)

    hook = None if sparse is None else sparse.after_epoch
    return fitted(config, model, data, seed, optimizer=optimizer, lr_schedule=cosine_cycles(1), after_epoch=hook)


def by_cv_adam(config: Config, data: Data, seed: int, pruning: Pruning | None = None) -> Outcome:
    """Cycles of CV-Adam with snapshots: of all cycles, or where it prunes on the way of the last one."""
    model = fresh(seed, data[0].device)
    pruner = None if pruning is None else _pruner(config, model, pruning)
    first = 0 if pruner is None else config.last_cycle
    in_time = sampling_epochs(config.cycles, config.per_cycle)
    snapshots = Snapshots(model, [], when=lambda progress: progress.epoch >= first and in_time(progress))

    def optimizer(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        sampler = CVAdam(
            groups,
            num_data=len(data[0]),
            lr=config.cv_lr,
            temperature=config.temperature,
            weight_decay=config.weight_decay,
            seed=seed,
        )
        return sampler if pruner is None else pruner.attach(sampler)

    def after_epoch(network: nn.Module, sampler: torch.optim.Optimizer, progress: Progress) -> None:
        if pruner is not None:
            pruner.after_epoch()
        snapshots(network, sampler, progress)

    schedule = cosine_cycles(config.cycles)
    fitted(config, model, data, seed, optimizer=optimizer, lr_schedule=schedule, after_epoch=after_epoch)
    return Outcome(snapshots, model)


def _pruner(config: Config, model: nn.Module, pruning: Pruning) -> SpikeAndSlab:
    """The target alone says what is set to zero; one tenth of the epochs goes by before."""
    return SpikeAndSlab(
        model,
        group=pruning.group,
        spike_decay=config.spike_decay,
        soft_threshold=config.soft_threshold,
        hard_threshold=0.0,
        warm_up=max(1, config.epochs // 10),
        feedback=pruning.feedback,
        feedback_until=config.last_cycle,
        target=SparsityTarget(pruning.sparsity, by_epoch=config.last_cycle),
    )


def sgd(config: Config, data: Data, seed: int) -> Outcome:
    """One network."""
    model = by_sgd(config, fresh(seed, data[0].device), data, seed)
    return Outcome(model, model)


def ensemble(config: Config, data: Data, seed: int) -> Outcome:
    """Independent networks."""
    whole = deep_ensemble(
        lambda: bl.models.lenet5_caffe().to(data[0].device),
        lambda model, own: by_sgd(config, model, data, own),
        members=config.members,
        seed=seed,
    )
    return Outcome(whole, whole.model)


def vi(config: Config, data: Data, seed: int) -> Outcome:
    """Mean-field variational inference with an ARD prior; the KL comes in over the second quarter of the epochs."""
    model = bl.bayesianize_(fresh(seed, data[0].device), prior=bl.priors.ARD(), estimator=bl.local_reparam)
    quarter = config.epochs // 4
    fitted(
        config,
        model,
        data,
        seed,
        lr=config.vi_lr,
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        kl_schedule=bl.schedules.warmup_linear(quarter, quarter),
    )
    single = copy.deepcopy(model)
    bl.prune_(single)
    return Outcome(model, bl.collapse_(single))


def mc_dropout(config: Config, data: Data, seed: int) -> Outcome:
    """Dropout before the last layer."""
    *body, head = fresh(seed, data[0].device)
    model = by_sgd(config, nn.Sequential(*body, nn.Dropout(config.dropout), head), data, seed)
    return Outcome(keep_dropout_(copy.deepcopy(model)), model)


def sparse_momentum(config: Config, data: Data, seed: int) -> Outcome:
    """5 % of the weights throughout."""
    model = fresh(seed, data[0].device)
    sparse = SparseMomentum(model, density=0.05, epochs=config.epochs, seed=seed)
    by_sgd(config, model, data, seed, sparse)
    return Outcome(model, model)


METHODS: dict[str, Callable[[Config, Data, int], Outcome]] = {
    "sgd": sgd,
    "ensemble": ensemble,
    "cvadam": by_cv_adam,
    "vi": vi,
    "mc-dropout": mc_dropout,
    **{name: functools.partial(by_cv_adam, pruning=pruning) for name, pruning in PRUNED.items()},
    "sm-95": sparse_momentum,
}
"""Method by name."""
