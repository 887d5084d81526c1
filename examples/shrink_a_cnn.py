"""Make a trained convolutional network several times smaller, and let it say how sure it is.

    python examples/shrink_a_cnn.py --out shrunk

Trains a plain network on scikit-learn's digits (8x8 pixels), as you would without bayeslim. Then: convert, sparsify
under an ARD prior, choose a threshold on validation images, prune, compact and export. The table compares the network
you had with the one you get. Needs the extras `sklearn` and `export`.
"""

import argparse
from pathlib import Path
from typing import Any

import rich
import torch
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning import Footprint

Pair = tuple[Tensor, Tensor]


def load() -> tuple[Pair, Pair, Pair]:
    """Training, validation and test images (N, 1, 8, 8) in [0, 1] with their labels."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.from_numpy(pixels).float().reshape(-1, 1, 8, 8)[order] / 16
    y = torch.from_numpy(labels).long()[order]
    return (x[:1200], y[:1200]), (x[1200:1500], y[1200:1500]), (x[1500:], y[1500:])


def plain_network() -> nn.Sequential:
    """The network to shrink: nothing of bayeslim in it."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=120, help="of the sparsification")
    parser.add_argument("--quick", action="store_true", help="a few epochs, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("shrunk"), help="folder for the exported networks")
    chosen = parser.parse_args(arguments)
    epochs, plain_epochs, samples = (6, 3, 5) if chosen.quick else (chosen.epochs, 60, 50)
    train, validation, test = load()

    torch.manual_seed(0)
    network = plain_network()
    decay = bl.schedules.constant_then_linear(0.5)
    common: dict[str, Any] = {
        "likelihood": bl.Categorical(),
        "batch_size": 64,
        "lr": 3e-3,
        "lr_schedule": decay,
        "seed": 0,
    }
    bl.fit(network, train, epochs=plain_epochs, **common)
    before, cost_before = bl.evaluate(network, test), bl.footprint(network, test[0])

    bl.bayesianize_(network, prior=bl.priors.ARD())  # in place: the trained weights become means
    bl.fit(network, train, epochs=epochs, kl_schedule=bl.schedules.warmup_linear(0, epochs // 2, 0.3), **common)
    curve = bl.prune_curve(network, validation, samples=samples)
    print(f"pruning {curve.best.sparsity:.1%} of the weights (log alpha > {curve.recommended:.2f})")
    bl.prune_(network, threshold=curve.recommended)
    small = bl.compact(network, train[0][:8])
    after, cost_after = bl.evaluate(small, test, samples=samples), bl.footprint(small, test[0])

    chosen.out.mkdir(parents=True, exist_ok=True)
    slim, onnx = chosen.out / "network.slim.safetensors", chosen.out / "network.onnx"
    bl.export.save_slim(small, slim)  # 16 bit, sparse coding
    bl.export_onnx(small, onnx, test[0][:2], samples=20)  # outputs mean, epistemic, aleatoric
    slim_bytes = slim.stat().st_size

    table = Table("", "plain network", "pruned, compacted", title="test images")
    for name in ("accuracy", "nll", "ece"):
        table.add_row(name, f"{before[name]:.4f}", f"{after[name]:.4f}")
    table.add_row("weights", f"{cost_before.weights:,}", f"{cost_after.weights:,}")
    table.add_row("not zero", f"{cost_before.nonzero:,}", f"{cost_after.nonzero:,}")
    table.add_row("multiply-adds", f"{cost_before.multiply_adds:,}", f"{cost_after.multiply_adds:,}")
    table.add_row("file, bytes", f"{cost_before.mean_bytes:,}", f"{slim_bytes:,}")
    table.add_row("1000 images, ms", f"{1e3 * _time(cost_before):.1f}", f"{1e3 * _time(cost_after):.1f}")
    rich.print(table)

    strange = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    unsure = [bl.predict(small, x, samples=samples, seed=0).entropy.mean().item() for x in (test[0], strange)]
    print(f"entropy of the small network: digits {unsure[0]:.2f} nats, random pixels {unsure[1]:.2f} nats")
    print(f"wrote {slim} and {onnx}")


def _time(cost: Footprint) -> float:
    assert cost.seconds_large is not None
    return cost.seconds_large


if __name__ == "__main__":
    main()
