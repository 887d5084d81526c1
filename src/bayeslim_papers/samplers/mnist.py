"""CV-Adam and pruning in one shot on MNIST: settings, scores and their table."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import bayeslim as bl
from bayeslim.predictive import Snapshots
from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Experiment, Log, Options
from bayeslim_papers.samplers.mnist_methods import METHODS, Data, Outcome
from bayeslim_papers.tables import Runs, average, by_method, one_row_each, spreads
from bayeslim_papers.training import in_percent

__all__ = ["SamplersMnist", "main", "table"]


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

    def times_less(key: str) -> Any:
        def column(runs: Runs) -> str:
            ratios = [{"ratio": run["dense"][key] / run["compacted"][key]} for run in runs]
            return average("ratio", ".3g")(ratios)

        return column

    columns = [
        ("networks", average("networks", "g")),
        ("accuracy %", spreads("accuracy")),
        ("NLL", spreads("nll")),
        ("ECE", spreads("ece")),
        ("one network: accuracy %", average("single/accuracy")),
        ("one network: NLL", average("single/nll")),
        ("sparsity %", average("sparsity", ".3g", 100)),
        ("weights after compaction", average("compacted/weights", ".0f")),
        ("bytes, times less", times_less("mean_bytes")),
        ("multiply-adds, times less", times_less("multiply_adds")),
        ("seconds", average("seconds", ".0f")),
    ]
    return one_row_each({name: groups[name] for name in METHODS if name in groups}, columns)


main = command(SamplersMnist, table)
"""What `bayeslim reproduce` runs."""
