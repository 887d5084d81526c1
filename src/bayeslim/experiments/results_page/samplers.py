"""Snapshots and pruning in one shot on the page: records, commands and notes."""

from __future__ import annotations

from statistics import mean

from bayeslim.experiments.results_page.entry import Entry, Record, seeds_of
from bayeslim.experiments.samplers.table import table as mnist_table
from bayeslim.experiments.vision.samplers_table import table as cifar_table

__all__ = ["CIFAR", "MNIST"]


def mnist(record: Record) -> str:
    """What was run."""
    config, weights = record["config"], record["runs"][0]["dense"]["weights"]
    theirs = ". ".join(
        f"{what}: {', '.join(f'{name} {value:g}' for name, value in row.items())}"
        for what, row in record["paper"].items()
    )
    return f"""{seeds_of(record)} seeds, mean ± standard deviation. LeNet-5-Caffe ({weights} weights),
    {config["epochs"]} epochs of batch {config["batch_size"]} for all. vi is a mean-field posterior with an ARD prior;
    dfp and dpf are CV-Adam with spike-and-slab masks, without and with feedback, at the sparsity in % that they are
    named by ("units": whole inputs); sm is sparse momentum; the rest stands in the experiment's docstring. "One
    network" is the last one alone, compacted. The paper (arXiv 2210.12957) has no MNIST; its nearest numbers: {theirs}.
    """


def mnist_notes(record: Record) -> str:
    """What pruning costs, and where the snapshots stand."""
    accuracy, nll, ece = (
        {name: _mean(record, name, key) for name in _names(record)} for key in ("accuracy", "nll", "ece")
    )
    dense = accuracy["cvadam"]
    units = [run for run in record["runs"] if run["method"] == "dfp-90-units"]
    fewer = mean(run["dense"]["multiply_adds"] / run["compacted"]["multiply_adds"] for run in units)
    return f"""
- Pruning while training is nearly free: {dense - accuracy["dfp-95"]:.2f} points for 95 % of the weights (dfp-95)
  against the same network dense (cvadam), {dense - accuracy["dfp-98"]:.2f} for 98 %. Sparse momentum, which is as
  sparse from the first step on, is as good ({accuracy["sm-95"]:.2f} %).
- CV-Adam's snapshots are the best calibrated of all dense methods (ECE {ece["cvadam"]:.3g}, sgd {ece["sgd"]:.3g}), but
  in NLL they do not beat one SGD network here ({nll["cvadam"]:.4f} against {nll["sgd"]:.4f}), let alone an ensemble
  ({nll["ensemble"]:.4f}): four cycles of five epochs leave each snapshot less trained than 20 epochs of SGD (learning
  rates of 0.05, 0.1 and 1 were worse: 98.81, 99.08 and 11.35 %).
- Pruning whole inputs at 90 % pays off in time ({fewer:.1f} times fewer multiply-adds) and costs
  {dense - accuracy["dfp-90-units"]:.1f} points."""


def cifar(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""{seeds_of(record)} seed and {config["epochs"]} epochs, for want of more time on a GPU; random crops and
    mirror images, products in {config["precision"]}. An epoch's seconds were taken with other work on the GPU."""


def cifar_notes(record: Record) -> str:
    """Why it is far from the paper."""
    runs = {run["method"]: run for run in record["runs"]}
    dense, sparse, sgd, paper = *(runs[name] for name in ("cvadam", "dfp-90", "sgd")), record["paper"]["accuracy %"]
    return f"""
- Far from the paper after {record["config"]["epochs"]} epochs instead of 200, and the average over snapshots is worse
  than the last network ({dense["accuracy"]:.1f} against {dense["single"]["accuracy"]:.1f} %): the early cycles, of
  three or four epochs each, had not learnt enough to be averaged. One SGD network, which has all epochs for one
  cosine, has {sgd["accuracy"]:.1f} % (paper {paper["sgd"]:g}): short runs are not for cycles.
- Without 90 % of its weights the last network loses {dense["single"]["accuracy"] - sparse["single"]["accuracy"]:.1f}
  points (paper {paper["cvadam"] - paper["dfp-90"]:.1f})."""


def _names(record: Record) -> list[str]:
    return list(dict.fromkeys(run["method"] for run in record["runs"]))


def _mean(record: Record, method: str, key: str) -> float:
    return mean(run[key] for run in record["runs"] if run["method"] == method)


MNIST: tuple[Entry, ...] = (
    Entry(
        "samplers_mnist",
        "CV-Adam and spike-and-slab pruning on MNIST",
        "bayeslim reproduce samplers --device cuda --seeds 3",
        mnist_table,
        mnist,
        mnist_notes,
    ),
)
CIFAR: tuple[Entry, ...] = (
    Entry(
        "samplers_cifar",
        "Snapshots and pruning: ResNet-18 on CIFAR-10",
        "bayeslim reproduce samplers-cifar --methods cvadam dfp-90 sgd --epochs 15 --batch-size 128 --lr 2 "
        "--sgd-lr 0.1 --root DATA --device cuda",
        cifar_table,
        cifar,
        cifar_notes,
    ),
)
