"""How the comparison trains: many networks side by side by Adam, or one by a sampler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

import bayeslim as bl
from bayeslim.likelihoods import remember_likelihood_
from bayeslim.optim import SGHMC, CVAdam
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.predictive import Snapshots
from bayeslim.randomness import derived_seed, seeded
from bayeslim.schedules import Progress, constant_then_linear, cosine_cycles, warmup_linear
from bayeslim.training.many import fit_many
from bayeslim.training.stack import Objective, StackStepper, check_alike
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
    """Train one network per job by Adam, all in one vectorised run; each remembers a likelihood of its own.

    The learning rate is constant for half of the steps, then falls to 0; the KL grows over the first quarter of the
    epochs. Jobs with the same data go through `fit_many`. Splits have data of their own, of one size: their networks
    take the same steps on one table of all splits, each in its own rows.
    """
    lr_schedule, kl_schedule = constant_then_linear(0.5), warmup_linear(0, config.epochs // 4)
    x, y = jobs[0].data
    if all(job.data[0] is x for job in jobs):
        fit_many(
            models,
            (x, y),
            likelihood=likelihood_for(jobs[0].data),
            epochs=config.epochs,
            batch_size=config.batch_size,
            lr=config.lr,
            lr_schedule=lr_schedule,
            kl_weight=kl_weight,
            kl_schedule=kl_schedule,
            seeds=[job.seed for job in jobs],
            progress=False,
        )
        return
    rows, device = len(x), x.device
    check_alike(models)
    likelihoods = [likelihood_for(job.data).to(device) for job in jobs]
    for model, own in zip(models, likelihoods, strict=True):
        remember_likelihood_(model, own)
    members = [Objective(model.train(), own, rows) for model, own in zip(models, likelihoods, strict=True)]
    table = [torch.cat(columns) for columns in zip(*(job.data for job in jobs), strict=True)]
    stepper = StackStepper(members, table[0], table[1], lr=[config.lr] * len(jobs))
    starts = torch.arange(len(jobs))[:, None] * rows
    weights, steps = torch.tensor(kl_weight), -(-rows // config.batch_size)
    try:
        with seeded(0), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)  # a loop inside torch.vmap
            for epoch in range(config.epochs):
                orders = starts + torch.stack([_order(derived_seed(job.seed, epoch), rows) for job in jobs])
                for step, chosen in enumerate(orders.to(device).split(config.batch_size, 1)):
                    now = Progress(epoch * steps + step, steps, config.epochs)
                    beta = kl_schedule(now)
                    stepper.step(chosen, weights * beta, torch.tensor(lr_schedule(now)), kl=beta > 0)
                stepper.epoch_summary()
    finally:
        stepper.release_()


def _order(seed: int, rows: int) -> torch.Tensor:
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))


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
