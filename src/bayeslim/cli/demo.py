"""The demonstration: a digit classifier that knows what it does not know, at 2 % of its weights.

Trains a plain perceptron on scikit-learn's embedded digits, turns it into a Bayesian one, anneals the KL,
and writes a report: `bayeslim demo --out demo-report`.
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
from bayeslim.report import Content, Names, Origin, collect, page, shuffled_features
from bayeslim.runtime.seeds import seeded
from bayeslim.storage import write_atomically

__all__ = ["Config", "Result", "main", "run"]

TITLE = "A digit classifier that knows what it does not know"


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


def run(config: Config, progress: bool = True) -> tuple[Result, nn.Module, Content]:
    """Pre-train, convert, anneal and judge; also return the network and what its report says."""
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
    history = bl.fit(
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
    content = collect(
        model,
        train,
        test,
        history=history,
        unfamiliar=shuffled_features(test[0], config.seed),
        names=Names(
            TITLE, "digit", image_shape=(1, 8, 8), unfamiliar="the test digits, every pixel shuffled among them"
        ),
        origin=Origin("make demo", config.seed, {"torch": torch.__version__}, {"settings": str(config)}),
        samples=config.samples,
        seed=config.seed,
    )
    return result, model, content


def _digits(test_part: float, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Scikit-learn's 1797 digits of 8x8 pixels in [0, 1], shuffled and split."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x = (torch.from_numpy(pixels).float() / 16)[order]
    y = torch.from_numpy(labels).long()[order]
    split = round(len(y) * (1 - test_part))
    return (x[:split], y[:split]), (x[split:], y[split:])


def write_report(folder: Path, config: Config, result: Result, model: nn.Module, content: Content) -> Path:
    """Write report.html, result.json and the network; return the report's path."""
    bl.save(model, folder / "network.safetensors")
    record = {"config": asdict(config), "result": asdict(result), "torch": torch.__version__}
    write_atomically(folder / "result.json", (json.dumps(record, indent=2) + "\n").encode())
    write_atomically(folder / "report.html", page(content).encode())
    return folder / "report.html"


def _rows(result: Result) -> list[tuple[str, str, str]]:
    plain, bayesian = result.plain, result.bayesian
    names = {"accuracy": "accuracy", "nll": "negative log-likelihood", "ece": "calibration error (15 bins)"}
    rows = [(label, f"{plain[name]:.4f}", f"{bayesian[name]:.4f}") for name, label in names.items()]
    return [*rows, ("weights that can go", "0.0 %", f"{100 * result.sparsity:.1f} %")]


def main(arguments: list[str] | None = None) -> None:
    """Run the demonstration from the command line."""
    parser = argparse.ArgumentParser(prog="bayeslim demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo-report"), help="folder of the report")
    parser.add_argument("--seed", type=int, default=0, help="seed of data split, weights and noise")
    parser.add_argument("--quick", action="store_true", help="a few epochs, to see that it runs")
    chosen = parser.parse_args(arguments)
    config = Config(seed=chosen.seed)
    if chosen.quick:
        config = replace(config, pretrain_epochs=3, epochs=6, ramp=3, samples=20)
    console = Console()
    console.print("Training a plain digit classifier, then its Bayesian counterpart (about 20 seconds) ...")
    result, model, content = run(config)
    report = write_report(chosen.out, config, result, model, content)
    table = Table("", "plain", "Bayesian", title="scikit-learn digits, test part")
    for row in _rows(result):
        table.add_row(*row)
    console.print(table)
    console.print(f"Report: {report}")
