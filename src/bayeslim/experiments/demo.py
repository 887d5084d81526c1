"""The demonstration: a digit classifier that knows what it does not know, at 2 % of its weights.

Trains a plain perceptron on scikit-learn's embedded digits, turns it into a Bayesian one, anneals the KL,
and writes a report: `python -m bayeslim.experiments.demo --out demo-report`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.randomness import seeded

__all__ = ["Config", "Result", "main", "run"]


@dataclass(frozen=True)
class Config:
    """Settings of the demonstration."""

    sizes: tuple[int, ...] = (64, 300, 100, 10)
    method: str = "ard"
    pretrain_epochs: int = 40
    epochs: int = 200
    ramp: int = 100
    beta: float = 0.3
    """Final weight of the KL; 1 is the evidence lower bound, less trades some sparsity for accuracy."""
    lr: float = 3e-3
    batch_size: int = 64
    test_part: float = 0.25
    samples: int = 200
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """What the demonstration measured, on the test part."""

    plain: dict[str, float]
    bayesian: dict[str, float]
    sparsity: float
    sparsity_per_layer: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class Doubt:
    """A test digit and what the network says about it."""

    image: Tensor
    label: int
    probabilities: Tensor
    entropy: float
    mutual_information: float


def run(config: Config, progress: bool = True) -> tuple[Result, nn.Module, list[Doubt]]:
    """Pre-train, convert, anneal and judge; also return the network and its five greatest doubts."""
    start = time.perf_counter()
    train, test = _digits(config.test_part, config.seed)
    with seeded(config.seed):
        plain = bl.models.mlp(config.sizes)
    common: dict[str, Any] = {
        "likelihood": bl.Categorical(),
        "batch_size": config.batch_size,
        "seed": config.seed,
        "progress": progress,
    }
    bl.fit(plain, train, epochs=config.pretrain_epochs, **common)
    model = bl.mlp(config.sizes, method=config.method, init=plain)
    bl.fit(
        model,
        train,
        epochs=config.epochs,
        lr=config.lr,
        lr_schedule=bl.schedules.constant_then_linear(0.5),
        kl_schedule=bl.schedules.warmup_linear(0, config.ramp, config.beta),
        **common,
    )
    result = Result(
        plain=bl.evaluate(plain, test),
        bayesian=bl.evaluate(model, test, samples=config.samples),
        sparsity=bl.sparsity(model),
        sparsity_per_layer=bl.named_sparsity(model),
        seconds=time.perf_counter() - start,
    )
    return result, model, _doubts(model, test, config)


def _digits(test_part: float, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Scikit-learn's 1797 digits of 8x8 pixels in [0, 1], shuffled and split."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x = (torch.from_numpy(pixels).float() / 16)[order]
    y = torch.from_numpy(labels).long()[order]
    split = round(len(y) * (1 - test_part))
    return (x[:split], y[:split]), (x[split:], y[split:])


def _doubts(model: nn.Module, test: tuple[Tensor, Tensor], config: Config, count: int = 5) -> list[Doubt]:
    """The test digits of greatest predictive entropy."""
    x, y = test
    prediction = bl.predict(model, x, samples=config.samples, seed=config.seed)
    return [
        Doubt(
            image=x[index].view(8, 8),
            label=int(y[index]),
            probabilities=prediction.mean[index],
            entropy=prediction.entropy[index].item(),
            mutual_information=prediction.mutual_information[index].item(),
        )
        for index in prediction.entropy.argsort(descending=True)[:count].tolist()
    ]


def write_report(folder: Path, config: Config, result: Result, model: nn.Module, doubts: list[Doubt]) -> Path:
    """Write report.md, its picture, result.json and the network; return the report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    _draw(doubts, folder / "doubts.png")
    bl.save(model, folder / "network.safetensors")
    record = {"config": asdict(config), "result": asdict(result), "torch": torch.__version__}
    (folder / "result.json").write_text(json.dumps(record, indent=2) + "\n")
    layers = ", ".join(f"{part:.1%}" for part in result.sparsity_per_layer.values())
    rows = "\n".join(f"| {name} | {a} | {b} |" for name, a, b in _rows(result))
    report = folder / "report.md"
    report.write_text(
        f"""# A digit classifier that knows what it does not know

A {"-".join(map(str, config.sizes))} network for 8x8 digits, trained plainly and then as a Bayesian network
(`{config.method}`, KL weight {config.beta}, {config.samples} posterior samples, seed {config.seed}),
judged on digits it never saw.

| | plain | Bayesian |
|---|---|---|
{rows}

Weights that are noise by layer (log alpha > 3): {layers}. The run took {result.seconds:.0f} s.

## The five digits it doubts most

![The five most uncertain test digits with their predictive probabilities](doubts.png)

Entropy is the total uncertainty in nats; mutual information is the part that comes from the weights and that
more data would remove.

The network is in `network.safetensors`: `bl.load("network.safetensors")`.
"""
    )
    return report


def _rows(result: Result) -> list[tuple[str, str, str]]:
    plain, bayesian = result.plain, result.bayesian
    names = {"accuracy": "accuracy", "nll": "negative log-likelihood", "ece": "calibration error (15 bins)"}
    rows = [(label, f"{plain[name]:.4f}", f"{bayesian[name]:.4f}") for name, label in names.items()]
    return [*rows, ("weights that can go", "0.0 %", f"{100 * result.sparsity:.1f} %")]


def _draw(doubts: list[Doubt], path: Path) -> None:
    """One row per doubt: the digit and its predictive probabilities."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 1.35 * len(doubts)), layout="constrained")
    axes = figure.subplots(len(doubts), 2, width_ratios=[1, 4], squeeze=False)
    for (picture, bars), doubt in zip(axes, doubts, strict=True):
        picture.imshow(doubt.image.numpy(), cmap="gray_r")
        picture.set_axis_off()
        colours = ["tab:green" if digit == doubt.label else "tab:gray" for digit in range(10)]
        bars.bar(range(10), doubt.probabilities.tolist(), color=colours)
        bars.set(ylim=(0, 1), xticks=range(10), yticks=[0, 1])
        bars.set_title(
            f"true {doubt.label}   entropy {doubt.entropy:.2f}   mutual information {doubt.mutual_information:.2f}",
            fontsize=9,
        )
    figure.savefig(path, dpi=120)


def main(arguments: list[str] | None = None) -> None:
    """Run the demonstration from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bayeslim.experiments.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-report"), help="folder of the report")
    parser.add_argument("--seed", type=int, default=0, help="seed of data split, weights and noise")
    parser.add_argument("--quick", action="store_true", help="a few epochs, to see that it runs")
    chosen = parser.parse_args(arguments)
    config = Config(seed=chosen.seed)
    if chosen.quick:
        config = replace(config, pretrain_epochs=3, epochs=6, ramp=3, samples=20)
    console = Console()
    console.print("Training a plain digit classifier, then its Bayesian counterpart (about 20 seconds) ...")
    result, model, doubts = run(config)
    report = write_report(chosen.out, config, result, model, doubts)
    table = Table("", "plain", "Bayesian", title="scikit-learn digits, test part")
    for row in _rows(result):
        table.add_row(*row)
    console.print(table)
    names = ", ".join(f"a {doubt.label} ({doubt.entropy:.2f} nats)" for doubt in doubts)
    console.print(f"It doubts most: {names}.")
    console.print(f"Report: {report}")


if __name__ == "__main__":
    main()
