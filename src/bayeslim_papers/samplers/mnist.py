"""CV-Adam and pruning in one shot on MNIST: settings, methods, scores and their table."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.baselines import SparseMomentum, deep_ensemble, keep_dropout_
from bayeslim.optim import CVAdam
from bayeslim.predictive import Snapshots
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import cosine_cycles
from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Experiment, Log, Options
from bayeslim_papers.samplers.cycles import Cycles, Masks
from bayeslim_papers.tables import Runs, average, by_method, one_row_each, spreads
from bayeslim_papers.training import in_percent

__all__ = ["METHODS", "PRUNED", "Outcome", "SamplersMnist", "main", "table"]

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


@dataclass(frozen=True)
class SamplersMnist(Experiment):
    """CV-Adam and pruning in one shot (arXiv 2210.12957) on MNIST, beside the usual baselines.

        bayeslim reproduce samplers --device cuda --out results/samplers_mnist.json

    The convolutional LeNet of Caffe (430 500 weights), standardised inputs, batch 128, the same epochs for all:

    - sgd: momentum 0.9, the learning rate falls to 0 along a cosine; ensemble: four of them;
    - cvadam: CV-Adam at the cold temperature, four cycles, snapshots after the last three epochs of each: twelve
      networks;
    - vi: mean-field posterior, ARD prior, local reparameterisation, KL annealed; 100 samples; one network = the means
      that are left at log alpha <= 3;
    - mc-dropout: sgd with dropout 0.5 before the last layer, kept random; 100 samples;
    - dfp-90, -95, -98, dpf-95: EM-MCMC, that is CV-Adam with spike-and-slab masks over single weights, which reach the
      named sparsity before the last cycle, without and with feedback; the snapshots of the last cycle share one mask.
      dfp-90-units prunes all weights that leave an input or channel together;
    - sm-95: sparse momentum, 95 % of the weights absent from the first step to the last.

    Each is scored as a whole on the test images, and as the one network it ends with, which is compacted and measured.
    Results are written after every run, and a run with the same --out goes on where it stopped.
    """

    name: ClassVar[str] = "samplers"
    root: ClassVar[str] = "mnist/"
    options: ClassVar[Options] = {
        "methods": {"choices": tuple(METHODS)},
        "seeds": {},
        "epochs": {},
    }
    paper: ClassVar[Mapping[str, Any]] = {
        "CIFAR-10, ResNet18, accuracy %": {"baseline": 95.0, "cSGLD": 95.7, "CV-Adam": 95.5},
        "CIFAR-10, ResNet18, 90 % sparse, accuracy %": {"SM": 89.7, "DSR": 90.0, "DFP": 93.9, "DPF": 93.8},
    }
    """It has no MNIST; these are its nearest numbers (table 1)."""

    methods: tuple[str, ...] = tuple(METHODS)
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

    def load(self, root: Path | None, device: str) -> tuple[Data, Data]:
        """MNIST, standardised by the mean and deviation of its training pixels."""
        parts = [bl.data.mnist(split, root=root) for split in ("train", "test")]
        centre, spread = parts[0].x.mean(), parts[0].x.std()
        train, test = (((part.x - centre) / spread).to(device) for part in parts)
        return (train, parts[0].y.to(device)), (test, parts[1].y.to(device))

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, tuple[Data, Data]]:
        """Four epochs of a thousand images."""
        small = cls(epochs=4, members=2, samples=10)
        (x, y), (x_test, y_test) = small.load(root, device)
        return small, ((x[:1000], y[:1000]), (x_test[:200], y_test[:200]))

    def measured(self, variant: str, seed: int, data: tuple[Data, Data], log: Log = SILENT) -> dict[str, Any]:
        """Train by a method and judge what it gives."""
        start = time.perf_counter()
        outcome = METHODS[variant](self, data[0], seed)
        return {"seconds": time.perf_counter() - start} | self.judged(outcome, data[1])

    def judged(self, outcome: Outcome, test: Data) -> dict[str, Any]:
        """Scores of the whole and of the compacted single network, and what that one costs."""
        example = test[0][:1].cpu()
        single = copy.deepcopy(outcome.single).cpu()
        small = bl.compact(single, example)
        before, after = (bl.footprint(network, example, repeats=0) for network in (single, small))
        if isinstance(outcome.whole, Snapshots):
            count = len(outcome.whole)
        else:
            count = 1 if outcome.whole is outcome.single else self.samples
        whole = bl.evaluate(outcome.whole, test, samples=self.samples, likelihood=bl.Categorical())
        alone = bl.evaluate(small.to(test[0].device), test, samples=0, likelihood=bl.Categorical())
        return {
            "networks": count,
            **in_percent(whole),
            "single": in_percent(alone),
            "sparsity": 1 - before.nonzero / before.weights,
            "dense": asdict(before),
            "compacted": asdict(after),
        }


def table(record: dict[str, Any]) -> str:
    """Mean and standard deviation over seeds for every method, in the order of `METHODS`, as Markdown."""
    groups = by_method(record)
    columns = [
        ("networks", average("networks", "g")),
        ("accuracy %", spreads("accuracy")),
        ("NLL", spreads("nll")),
        ("ECE", spreads("ece")),
        ("one network: accuracy %", average("single/accuracy")),
        ("one network: NLL", average("single/nll")),
        ("sparsity %", average("sparsity", ".3g", 100)),
        ("weights after compaction", average("compacted/weights", ".0f")),
        ("bytes, times less", lambda runs: f"{times_less(runs, 'mean_bytes'):.3g}"),
        ("multiply-adds, times less", lambda runs: f"{times_less(runs, 'multiply_adds'):.3g}"),
        ("seconds", average("seconds", ".0f")),
    ]
    return one_row_each({name: groups[name] for name in METHODS if name in groups}, columns)


def times_less(runs: Runs, key: str) -> float:
    """How many times less the compacted networks need, on average."""
    return mean(run["dense"][key] / run["compacted"][key] for run in runs)


main = command(SamplersMnist, table)
"""What `bayeslim reproduce` runs."""
