"""How the comparison trains: networks side by side by Adam, or one by a sampler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

import bayeslim as bl
from bayeslim.optim import SGHMC, CVAdam
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.predictive import Snapshots
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import constant_then_linear, cosine_cycles, warmup_linear
from bayeslim.training.many import fit_many
from bayeslim_papers.comparison.data import Data, likelihood_for, sizes_for
from bayeslim_papers.samplers.cycles import Cycles, Masks

if TYPE_CHECKING:
    from bayeslim_papers.comparison.command import Comparison

__all__ = ["Job", "by_sampler", "cycles_of", "network", "sampler_for", "train_side_by_side"]


class Job(NamedTuple):
    """One network to train."""

    data: Data
    value: float
    """Of the hyper-parameter that the method's grid is over."""
    seed: int


def network(config: Comparison, job: Job, method: str = "graves", **options: Any) -> nn.Sequential:
    """The perceptron that all methods share, with He means drawn by the seed."""
    with seeded(job.seed):
        return bl.mlp(sizes_for(job.data, config.hidden), method=method, **options).to(job.data[0].device)


def train_side_by_side(
    config: Comparison, models: Sequence[nn.Module], jobs: Sequence[Job], kl_weight: Sequence[float]
) -> None:
    """Train one network per job by Adam, those with the same data side by side; each remembers a likelihood of its own.

    The learning rate is constant for half of the steps, then falls to 0; the KL grows over the first quarter of the
    epochs.
    """
    groups: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(id(job.data[0]), []).append(index)
    for members in groups.values():
        data = jobs[members[0]].data
        fit_many(
            [models[index] for index in members],
            data,
            likelihood=likelihood_for(data),
            epochs=config.epochs,
            batch_size=config.batch_size,
            lr=config.lr,
            lr_schedule=constant_then_linear(0.5),
            kl_weight=[kl_weight[index] for index in members],
            kl_schedule=warmup_linear(0, config.epochs // 4),
            seeds=[jobs[index].seed for index in members],
            progress=False,
        )


def by_sampler(config: Comparison, job: Job, kind: str) -> Snapshots | None:
    """One network along cycles of a sampler, as snapshots; None if it diverged.

    "sghmc" samples at temperature 1, "cvadam" at the paper's "posterior" one, both with snapshots of every cycle. "dfp"
    is "cvadam" at the "cold" temperature with spike-and-slab masks over single weights, final before the last cycle,
    of which alone it keeps snapshots. The prior is N(0, 1); the size of the noise in the data is not sampled but
    learned, and that of the end stands for all snapshots.
    """
    model = bl.collapse_(network(config, job))
    cycles = cycles_of(config)
    pruner = cycles.pruner(model, Masks(config.sparsity)) if kind == "dfp" else None
    snapshots, after_epoch = cycles.followed(model, pruner)
    try:
        bl.fit(
            model,
            job.data,
            likelihood=likelihood_for(job.data),
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer=sampler_for(job, kind, pruner),
            lr_schedule=cosine_cycles(config.cycles),
            clip_norm=config.clip_norm,
            after_epoch=after_epoch,
            seed=job.seed,
            progress=False,
        )
    except FloatingPointError:
        return None
    return snapshots


def sampler_for(
    job: Job, kind: str, pruner: SpikeAndSlab | None = None
) -> Callable[[list[dict[str, Any]]], torch.optim.Optimizer]:
    """What makes the sampler from parameter groups, at the learning rate `job.value`."""
    count = len(job.data[0])
    shared: dict[str, Any] = {"num_data": count, "lr": job.value, "weight_decay": 1 / count, "seed": job.seed}

    def build(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        own = [parameter for group in groups for parameter in group["params"] if parameter.ndim == 0]
        groups = [group | {"params": [p for p in group["params"] if p.ndim > 0]} for group in groups]
        if own:
            groups = [*groups, {"params": own, "temperature": 0.0, "weight_decay": 0.0}]
        if kind == "sghmc":
            return SGHMC(groups, **shared)
        sampler = CVAdam(groups, temperature="cold" if kind == "dfp" else "posterior", **shared)
        return pruner.attach(sampler) if pruner else sampler

    return build


def cycles_of(config: Comparison) -> Cycles:
    """When samplers take snapshots, and what makes masks."""
    return Cycles(config.epochs, config.cycles, config.per_cycle, spike_decay=1e-2)
