"""CV-Adam and pruning in one shot (arXiv 2210.12957) on MNIST, beside the usual baselines.

    bayeslim reproduce samplers --device cuda --out results/samplers_mnist.json

The convolutional LeNet of Caffe (430 500 weights), standardised inputs, batch 128, the same epochs for all:

- sgd: momentum 0.9, the learning rate falls to 0 along a cosine; ensemble: four of them;
- cvadam: CV-Adam at the cold temperature, four cycles, snapshots after the last three epochs of each: twelve networks;
- vi: mean-field posterior, ARD prior, local reparameterisation, KL annealed; 100 samples; one network = the means that
  are left at log alpha <= 3;
- mc-dropout: sgd with dropout 0.5 before the last layer, kept random; 100 samples;
- dfp-90, -95, -98, dpf-95: EM-MCMC, that is CV-Adam with spike-and-slab masks over single weights, which reach the
  named sparsity before the last cycle, without and with feedback; the snapshots of the last cycle share one mask.
  dfp-90-units prunes all weights that leave an input or channel together;
- sm-95: sparse momentum, 95 % of the weights absent from the first step to the last.

Each is scored as a whole on the test images, and as the one network it ends with, which is compacted and measured.
Results are written after every run, and a run with the same --out goes on where it stopped.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

import bayeslim as bl
from bayeslim.predictive import Snapshots
from bayeslim_papers.arguments import add_seeds, common_parser
from bayeslim_papers.method_runs import all_runs, merged
from bayeslim_papers.record import Record, join_files, read_record, write_record
from bayeslim_papers.samplers.mnist_methods import METHODS, Config, Data, Outcome
from bayeslim_papers.samplers.mnist_table import table

__all__ = ["PAPER", "Config", "main", "run"]

PAPER = {
    "CIFAR-10, ResNet18, accuracy %": {"baseline": 95.0, "cSGLD": 95.7, "CV-Adam": 95.5},
    "CIFAR-10, ResNet18, 90 % sparse, accuracy %": {"SM": 89.7, "DSR": 90.0, "DFP": 93.9, "DPF": 93.8},
}
"""The paper has no MNIST; these are its nearest numbers (table 1)."""


def run(
    config: Config,
    images: tuple[Data, Data],
    *,
    earlier: Record | None = None,
    save: Callable[[Record], None] = lambda record: None,
    console: Console | None = None,
) -> Record:
    """All methods and seeds on (train, test), see `all_runs`."""
    train, test = images

    def measured(method: str, seed: int) -> dict[str, Any]:
        start = time.perf_counter()
        outcome = METHODS[method](config, train, seed)
        found = {"seconds": time.perf_counter() - start} | judged(config, outcome, test)
        if console is not None:
            console.print(f"{method} seed {seed}: {found}", markup=False)
        return found

    return all_runs(config, PAPER, train[0].device, measured, earlier=earlier, save=save)


def judged(config: Config, outcome: Outcome, test: Data) -> dict[str, Any]:
    """Scores of the whole and of the compacted single network, and what that one costs."""
    x, _ = test
    single = copy.deepcopy(outcome.single).cpu()
    small = bl.compact(single, x[:1].cpu())
    before, after = (bl.footprint(network, x[:1].cpu(), repeats=0) for network in (single, small))
    if isinstance(outcome.whole, Snapshots):
        count = len(outcome.whole)
    else:
        count = 1 if outcome.whole is outcome.single else config.samples
    likelihood = bl.Categorical()
    return {
        "networks": count,
        **_scores(bl.evaluate(outcome.whole, test, samples=config.samples, likelihood=likelihood)),
        "single": _scores(bl.evaluate(small.to(x.device), test, samples=0, likelihood=likelihood)),
        "sparsity": 1 - before.nonzero / before.weights,
        "dense": asdict(before),
        "compacted": asdict(after),
    }


def _scores(found: dict[str, float]) -> dict[str, float]:
    return {"accuracy": 100 * found["accuracy"], "nll": found["nll"], "ece": found["ece"]}


def load_images(root: Path | None, device: str) -> tuple[Data, Data]:
    """MNIST, standardised by the mean and deviation of its training pixels."""
    train, test = (bl.data.mnist(split, root=root) for split in ("train", "test"))
    centre, spread = train.x.mean(), train.x.std()
    train_part, test_part = (((part.x - centre) / spread, part.y) for part in (train, test))
    return (train_part[0].to(device), train_part[1].to(device)), (test_part[0].to(device), test_part[1].to(device))


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    quick = "one seed, four epochs of a thousand images"
    parser = common_parser(__doc__, root="mnist/", quick=quick, out="JSON file to write, and to go on from")
    add_seeds(parser, default=Config.seeds)
    parser.add_argument("--methods", nargs="+", default=list(Config.methods), choices=Config.methods)
    parser.add_argument("--epochs", type=int, default=Config.epochs)
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = join_files(chosen.merge, merged, chosen.out)
    else:
        config = Config(tuple(chosen.methods), tuple(chosen.seeds), chosen.epochs)
        images = load_images(chosen.root, chosen.device)
        if chosen.quick:
            config = Config(config.methods, (0,), 4, members=2, samples=10)
            (x, y), (x_test, y_test) = images
            images = (x[:1000], y[:1000]), (x_test[:200], y_test[:200])
        earlier = read_record(chosen.out)
        record = run(
            config, images, earlier=earlier, save=lambda found: write_record(chosen.out, found), console=console
        )
    console.print(table(record), markup=False)


if __name__ == "__main__":
    main()
