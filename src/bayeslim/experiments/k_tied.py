"""The k-tied Normal posterior on MNIST: figure 6 and table 2 of arXiv 2002.02655.

    python -m bayeslim.experiments.k_tied --out results/k_tied_mnist.json --device cuda

A 784-400-400-10 perceptron, all kernels and biases Bayesian (biases mean-field), N(0, prior_std^2) prior, weight
sampling, Adam, batch 1024, inputs in [-1, 1], the last 10 000 training images held out. For mean-field and
k = 1, 2, 3 under the same budget:

- annealed: KL weight min(1, 100 rate floor(step / 100)); test -ELBO, NLL, accuracy (100 samples), parameters;
- plain: no annealing; signal-to-noise ratio of the scale gradients of the second layer and validation -ELBO at
  steps 1000, 5000 and 9000;
- truncation: the scales of the annealed mean-field network cut to rank 1, 2, 3 after training.
"""

from __future__ import annotations

import copy
import functools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import GradientSNR, truncate_scales_
from bayeslim.experiments.arguments import common_parser
from bayeslim.experiments.record import write_record
from bayeslim.posteriors import KTied, MeanField
from bayeslim.randomness import derived_seed, seeded
from bayeslim.schedules import Progress
from bayeslim.training.step import Stepper

__all__ = ["PAPER", "Config", "main", "run"]

PAPER = {
    "figure 6 left (test -ELBO, NLL, accuracy %)": {
        "mean-field": (0.501, 0.133, 96.8),
        "1-tied": (0.539, 0.155, 96.1),
        "2-tied": (0.520, 0.129, 96.8),
        "3-tied": (0.497, 0.120, 96.9),
    },
    "figure 6 right (SNR at 1000, 5000, 9000 steps; validation -ELBO)": {
        "mean-field": ((4.13, 4.45, 3.21), (42.16, 26.52, 15.39)),
        "1-tied": ((5840, 158, 5.3), (43.11, 14.85, 2.06)),
        "2-tied": ((7500, 140, 4.3), (42.74, 13.97, 1.82)),
        "3-tied": ((7000, 117, 4.1), (42.63, 13.61, 1.80)),
    },
    "table 2, MNIST (-ELBO, NLL, accuracy %)": {
        "mean-field": (0.431, 0.100, 97.6),
        "rank 1": (3.41, 0.677, 93.6),
        "rank 2": (0.456, 0.107, 97.6),
        "rank 3": (0.450, 0.106, 97.6),
    },
}
"""The paper's numbers."""
WINDOW = 10
"""Batches over which the signal-to-noise ratio is taken."""


@dataclass(frozen=True)
class Config:
    """Settings; learning rate and prior are choices from the paper's grids."""

    sizes: tuple[int, ...] = (784, 400, 400, 10)
    ranks: tuple[int, ...] = (0, 1, 2, 3)
    """Ranks of the posteriors; 0 is mean-field."""
    cuts: tuple[int, ...] = (1, 2, 3)
    """Ranks to which the scales of the mean-field network are cut."""
    batch_size: int = 1024
    epochs: int = 300
    lr: float = 3e-3
    prior_std: float = 0.2
    anneal_rate: float = 5e-5
    scale: float = 0.01
    probe_steps: tuple[int, ...] = (1000, 5000, 9000)
    probe_lr: float = 3e-4
    probe_scale: float = 1e-3
    samples: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Images:
    """Training, validation and test parts on one device."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def load_images(root: Path | None, device: str) -> Images:
    """MNIST scaled to [-1, 1]; the last 10 000 training images are for validation."""
    parts = [bl.data.mnist(split, root=root) for split in ("train", "test")]
    (x, y), test = ((2 * p.x.flatten(1).to(device) - 1, p.y.to(device)) for p in parts)
    held = len(y) - 10_000
    return Images((x[:held], y[:held]), (x[held:], y[held:]), test)


def build(config: Config, k: int, scale: float, device: str) -> nn.Module:
    """The network with a k-tied posterior; k = 0 is mean-field."""
    posterior = functools.partial(KTied, k=k) if k else MeanField
    model = bl.mlp(
        config.sizes,
        posterior=functools.partial(posterior, scale=scale),
        prior=bl.priors.Normal(0.0, config.prior_std),
        estimator=bl.weight_sample,
        bias_posterior=functools.partial(MeanField, scale=scale),
    )
    return model.to(device)


def train(
    config: Config, model: nn.Module, images: Images, seed: int, steps: int, anneal: bool, lr: float
) -> list[dict[str, Any]]:
    """Train for `steps` steps; without annealing, measure at the probe steps on the way."""
    x, y = images.train
    steps_per_epoch = -(-len(x) // config.batch_size)
    optimizer = torch.optim.Adam(bl.param_groups(model), lr, fused=True)
    stepper = Stepper(model, bl.Categorical(), optimizer, num_data=len(x))
    weight = bl.schedules.staircase(config.anneal_rate) if anneal else bl.schedules.constant()
    snr = GradientSNR(model, window=WINDOW)
    order: tuple[Tensor, ...] = ()
    probes: list[dict[str, Any]] = []
    last = 0 if anneal else max(config.probe_steps)
    with seeded(derived_seed(seed, int(anneal))):
        for step in range(max(steps, last)):
            if step % steps_per_epoch == 0:
                order = torch.randperm(len(x), device=x.device).split(config.batch_size)
                stepper.seen.clear()
            index = order[step % steps_per_epoch]
            stepper.step([(x[index], y[index])], weight(Progress(step, steps_per_epoch, 1)), 1.0)
            if not anneal and any(0 <= probe - 1 - step < WINDOW for probe in config.probe_steps):
                snr.update()
            if not anneal and step + 1 in config.probe_steps:
                second = list(snr.layers)[1]
                probes.append(
                    {
                        "step": step + 1,
                        "snr": snr.values("second_moment")[second],
                        "snr_median": snr.values("second_moment", "median")[second],
                        "validation_nelbo": score(model, images.validation, len(x), 10)["nelbo"],
                    }
                )
    return probes


@torch.no_grad()
def score(model: nn.Module, data: tuple[Tensor, Tensor], num_data: int, samples: int) -> dict[str, float]:
    """-ELBO per datum, NLL and accuracy of the averaged prediction, from weight samples."""
    x, y = data
    average = torch.zeros(len(x), 10, device=x.device, dtype=torch.float64)
    expected = 0.0
    with seeded(0):
        for _ in range(samples):
            log_p = model(x).log_softmax(-1).double()
            average += log_p.exp() / samples
            expected -= log_p.gather(1, y[:, None]).mean().item() / samples
    return {
        "nelbo": expected + bl.kl(model).item() / num_data,
        "nll": bl.metrics.negative_log_likelihood(average, y),
        "accuracy": 100 * bl.metrics.accuracy(average, y),
    }


def run(config: Config, images: Images, device: str = "cpu", console: Console | None = None) -> dict[str, Any]:
    """All variants and seeds; returns a JSON-able record."""
    num_data = len(images.train[0])
    steps = config.epochs * -(-num_data // config.batch_size)
    runs: list[dict[str, Any]] = []
    for seed in config.seeds:
        for k in config.ranks:
            name = f"{k}-tied" if k else "mean-field"
            start = time.perf_counter()
            with seeded(seed):
                model = build(config, k, config.scale, device)
                probed = build(config, k, config.probe_scale, device)
            train(config, model, images, seed, steps, anneal=True, lr=config.lr)
            annealed = score(model, images.test, num_data, config.samples)
            probes = train(config, probed, images, seed, 0, anneal=False, lr=config.probe_lr)
            record = {"seed": seed, "posterior": name, "annealed": annealed, "probes": probes}
            record["parameters"] = sum(p.numel() for p in model.parameters())
            if k == 0:
                record["truncated"] = _truncated(config, model, images, num_data)
            record["seconds"] = time.perf_counter() - start
            runs.append(record)
            if console is not None:
                console.print(f"seed {seed} {name}: {annealed} in {record['seconds']:.0f} s")
    return {
        "config": asdict(config),
        "device": device,
        "torch": torch.__version__,
        "paper": PAPER,
        "runs": runs,
    }


def merged(records: list[dict[str, Any]]) -> dict[str, Any]:
    """One record out of several that differ in their seeds and ranks only."""
    joined = {key: sorted({v for r in records for v in r["config"][key]}) for key in ("seeds", "ranks")}
    runs = [run for record in records for run in record["runs"]]
    return records[0] | {"config": records[0]["config"] | joined, "runs": runs}


def _truncated(config: Config, model: nn.Module, images: Images, num_data: int) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for rank in config.cuts:
        cut = copy.deepcopy(model)
        truncate_scales_(cut, rank)
        table[f"rank {rank}"] = score(cut, images.test, num_data, config.samples)
    return table


def table(record: dict[str, Any]) -> str:
    """The results beside the paper's, as Markdown; mean and standard deviation over seeds."""
    runs: list[dict[str, Any]] = record["runs"]
    left, right, cut = record["paper"].values()
    names = list(left)
    seeds = {name: [run for run in runs if run["posterior"] == name] for name in names}
    lines = [
        "| posterior | -ELBO (paper) | NLL (paper) | accuracy % (paper) | parameters |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        cells = [
            f"{_spread([run['annealed'][key] for run in seeds[name]])} ({theirs})"
            for key, theirs in zip(("nelbo", "nll", "accuracy"), left[name], strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {seeds[name][0]['parameters']} |")
    steps = record["config"]["probe_steps"]
    lines += [
        "",
        "| posterior | scale-gradient SNR (median) at "
        + ", ".join(map(str, steps))
        + " (paper) | validation -ELBO (paper) |",
        "|---|---|---|",
    ]
    for name in names:
        probes = [[run["probes"][i] for run in seeds[name]] for i in range(len(steps))]
        ratios = ", ".join(f"{mean([p['snr_median'] for p in probe]):.4g}" for probe in probes)
        bounds = ", ".join(f"{mean([p['validation_nelbo'] for p in probe]):.4g}" for probe in probes)
        theirs = [", ".join(map(str, values)) for values in right[name]]
        lines.append(f"| {name} | {ratios} ({theirs[0]}) | {bounds} ({theirs[1]}) |")
    lines += ["", "| scales | -ELBO (paper) | NLL (paper) | accuracy % (paper) |", "|---|---|---|---|"]
    for name in cut:
        scores = [run["annealed"] if name == "mean-field" else run["truncated"][name] for run in seeds["mean-field"]]
        cells = [
            f"{_spread([values[key] for values in scores])} ({theirs})"
            for key, theirs in zip(("nelbo", "nll", "accuracy"), cut[name], strict=True)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    return f"{mean(values):.4g}" + (f" +- {stdev(values):.2g}" if len(values) > 1 else "")


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    parser = common_parser(__doc__, root="mnist/", quick="one seed and a few steps, to see that it runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ranks", type=int, nargs="+", default=[0, 1, 2, 3], help="0 is mean-field")
    chosen = parser.parse_args(arguments)
    config = Config(seeds=tuple(chosen.seeds), ranks=tuple(chosen.ranks))
    if chosen.quick:
        config = Config(epochs=1, probe_steps=(10, 20, 30), samples=5, seeds=(0,))
    console = Console()
    if chosen.merge:
        record = merged([json.loads(file.read_text()) for file in chosen.merge])
    else:
        record = run(config, load_images(chosen.root, chosen.device), chosen.device, console)
    if set(record["config"]["ranks"]) == set(Config.ranks):
        console.print(table(record), markup=False)
    write_record(chosen.out, record)


if __name__ == "__main__":
    main()
