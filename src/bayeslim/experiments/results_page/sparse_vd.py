"""Sparse VD on the page: records, commands and notes."""

from __future__ import annotations

from statistics import mean

from bayeslim.experiments.results_page.entry import Entry, Notes, Record, seeds_of
from bayeslim.experiments.sparse_vd.table import table

__all__ = ["ENTRIES"]

Points = dict[tuple[str, str], tuple[float, float]]
"""Mean error in % and compression, by recipe and finish."""


def lenet(record: Record) -> str:
    """What was run."""
    epochs = sorted({recipe["epochs"] for recipe in record["recipes"].values()})
    settings, seeds = record["settings"], seeds_of(record)
    spread = "1 seed" if seeds == 1 else f"{seeds} seeds, mean ± standard deviation"
    finishes = "; ".join(f"{name}: {_finish(facts, settings)}" for name, facts in record["finishes"].items())
    return f"""{spread}. {" or ".join(map(str, epochs))} epochs of batch {settings["batch_size"]}, pixels / 255 minus
    the mean image. Compression counts weights; all recipes and finishes that were run with these seeds are shown.
    Finishes: {finishes}."""


def _finish(facts: Record, settings: Record) -> str:
    """What a finish does; early records have one learning rate for all."""
    cut = f"{'ln alpha above' if facts['by'] == 'log alpha' else 'mean below'} {facts['threshold']:g}"
    if not facts["tune"]:
        return f"prune by {cut}"
    epochs, rate = facts["tune"] * settings["tune_epochs"], facts.get("lr", settings.get("tune_lr"))
    parts = [cut, f"{epochs} epochs at {rate:g}"]
    ways = ["shifted by a pixel"] * facts.get("shift", False) + ["turned by some degrees"] * facts.get("turn", False)
    parts += [f"images also {' or '.join(ways)}"] * bool(ways)
    parts += ["targets half the posterior's prediction"] * facts["distil"]
    parts += [f"noise and a KL of weight {facts.get('beta', 0):g}"] * bool(facts.get("beta"))
    return ", ".join(parts)


def _points(record: Record, without: int | None = None) -> Points:
    """Averages over all seeds, or all but one."""
    found: dict[tuple[str, str], list[Record]] = {}
    for run in record["runs"]:
        for finish in record["finishes"]:
            if "failed" not in run[finish] and run["seed"] != without:
                found.setdefault((run["recipe"], finish), []).append(run[finish])
    return {
        names: (mean(one["error"] for one in results), mean(one["compression"] for one in results))
        for names, results in found.items()
    }


def _best(record: Record) -> tuple[str, str]:
    """Recipe and finish of the least error at the goal's compression or more."""
    points, least = _points(record), record["goal"]["compression"]
    return min((names for names in points if points[names][1] >= least), key=lambda names: points[names][0])


def lenet_notes(record: Record) -> str:
    """How near the goal is, and where we stand beside the paper."""
    paper, goal = record["paper"]["molchanov"], record["goal"]
    recipe, finish = best = _best(record)
    error, compression = _points(record)[best]
    better = "better on both" if error < paper["error"] and compression > paper["compression"] else "not better on both"
    return f"""
- The best error at {goal["compression"]} times or more is that of `{recipe}`, {finish}: {error:.2f} % at
  {compression:.0f} times. Molchanov et al. 2017 report {paper["error"]} % at {paper["compression"]}: ours is {better}.
- The goal of {goal["error"]:.2f} % is {"met" if error <= goal["error"] else f"missed by {error - goal['error']:.2f}"}
  points."""


def shifted_notes(record: Record) -> str:
    """As `lenet_notes`, and what shifted images do for the same weights."""
    points = _points(record)
    recipe = next(iter(record["recipes"]))
    gain = points[recipe, "tuned"][0] - points[recipe, "shifted"][0]
    longer = points.get((recipe, "longer"))
    without = ""
    if longer is not None:
        without = f""" As many epochs on the images as they are overfit: {longer[0]:.2f} %
  ({recipe}, longer) against {points[recipe, "tuned"][0]:.2f} % after ten."""
    return (
        lenet_notes(record)
        + f"""
- Shifted images are worth {gain:.2f} points for the same weights ({recipe}, shifted against tuned), which the papers do
  without: beside them stand tuned, harder and relaxed.{without}
- Seed 10 tells which finishes are worth a run; it was judged on the test images, as everything here."""
    )


def ard_clip_notes(record: Record) -> str:
    """As `lenet_notes`, and what the seeds say that chose nothing."""
    recipe, finish = best = _best(record)
    error, compression = _points(record, without=10)[best]
    return (
        lenet_notes(record)
        + f"""
- Seed 10 chose the finishes, judged on the test images; without it `{recipe}`, {finish} has {error:.2f} % at
  {compression:.0f} times.
- With the clipping of the official code (see below) pruning costs nothing, and a smaller weight of the KL gives the
  same compression. The error for a given compression is about that of ARD without clipping."""
    )


def p2_large_notes(record: Record) -> str:
    """LeNet-300-100 by the recipes of the papers."""
    points, paper = _points(record), record["paper"]["molchanov"]
    curve = [points[name, "magnitude"] for name in record["recipes"] if name.startswith("gamma")]
    official, ard = points["molchanov", "pruned"], points["p2-ard", "pruned"]
    return f"""
- The Gamma hyperprior trades error for compression as its shape grows, from {min(curve)[0]:.2f} % at
  {min(curve)[1]:.0f} times to {max(curve)[0]:.2f} % at {max(curve)[1]:.0f}; ARD without it reaches {ard[0]:.2f} % at
  {ard[1]:.0f}, which no shape does.
- The official recipe of Sparse VD gives {official[0]:.2f} % at {official[1]:.0f} times; the paper has
  {paper["error"]} % at {paper["compression"]}: less error, less compression. Its code clips ln alpha and sets dead
  means to 0 in training; with that (below) compression nearly doubles.
- Means below 0.01 (arXiv 1811.00596) are a milder criterion than ln alpha above 3 here: without the Gamma's bound on
  the scales many means that are all noise are larger."""


def clip_notes(record: Record) -> str:
    """What the clipping does."""
    paper = record["paper"]["molchanov-clip"]
    error, compression = _points(record)["molchanov-clip", "pruned"]
    return f"""
- In the official code a weight whose ln alpha has passed 3 loses its mean in training already, and no variance exceeds
  exp(8) times the squared mean: what is given up tends to stay so. That alone takes the recipe to {error:.2f} % at
  {compression:.0f} times, better on both than the paper's {paper["error"]} % at {paper["compression"]}; without it
  (`molchanov`, above) the compression is about half.
- Records whose recipes do not end in `-clip` were made without it."""


def p2_small_notes(record: Record) -> str:
    """LeNet-5 by the recipes of the papers."""
    points, paper = _points(record), record["paper"]
    svd, ard = (points[name, "magnitude"] for name in ("p2-svd", "p2-ard"))
    official = points["molchanov", "pruned"]
    return f"""
- One seed so far: the errors, {svd[0]:.2f} % (Sparse VD) and {ard[0]:.2f} % (ARD), are the paper's
  {paper["p2-svd"]["error"]} and {paper["p2-ard"]["error"]} % within its spread, the compressions of {svd[1]:.0f} and
  {ard[1]:.0f} times are {100 * (1 - svd[1] / paper["p2-svd"]["compression"]):.0f} and
  {100 * (1 - ard[1] / paper["p2-ard"]["compression"]):.0f} % below its {paper["p2-svd"]["compression"]} and
  {paper["p2-ard"]["compression"]}. By ln alpha above 3 the same networks are {points["p2-svd", "pruned"][1]:.0f} and
  {points["p2-ard", "pruned"][1]:.0f} times smaller.
- The official recipe of Sparse VD gives {official[0]:.2f} % at {official[1]:.0f} times, far from the
  {paper["molchanov"]["compression"]} of its paper, whose code clips ln alpha and sets dead means to 0 in training."""


_LENETS = "--seeds 10 0 1 2 3 4 --finishes pruned tuned harder hardest"
_SHIFTED = "shifted shifted-distilled harder-shifted harder-shifted-distilled"
_P2 = "--finishes pruned magnitude tuned --compile"


def _entry(
    network: str, title: str, options: str, *notes: Notes, kind: str = "", device: str = " --device cuda"
) -> Entry:
    command = f"bayeslim reproduce sparse-vd --network {network} {options}{device}"
    return Entry(f"sparse_vd_{kind}{network.replace('-', '_')}", title, command, table, *notes)


ENTRIES: tuple[Entry, ...] = (
    _entry(
        "lenet-300-100",
        "Sparse VD: LeNet-300-100 on MNIST",
        f"--recipes ard-4 ard-5 {_LENETS}",
        lenet,
        lenet_notes,
    ),
    _entry(
        "lenet-300-100",
        "Sparse VD: LeNet-300-100, tuned on shifted images and otherwise",
        "--recipes ard-4 ard-5 --seeds 10 0 1 2 3 4 --compile --finishes pruned tuned harder longer relaxed "
        + _SHIFTED,
        lenet,
        shifted_notes,
        kind="shifted_",
    ),
    _entry(
        "lenet-5",
        "Sparse VD: LeNet-5-Caffe on MNIST",
        f"--recipes ard-4 ard-6-spared {_LENETS}",
        lenet,
        lenet_notes,
    ),
    _entry(
        "lenet-5",
        "Sparse VD: LeNet-5-Caffe, tuned on shifted images",
        "--recipes ard-4 --seeds 10 0 1 2 3 4 --together 1 --compile --finishes pruned tuned harder " + _SHIFTED,
        lenet,
        shifted_notes,
        kind="shifted_",
    ),
    _entry(
        "lenet-300-100",
        "ARD with clipping: LeNet-300-100, tuned on shifted images",
        "--recipes ard-3-clip ard-4-clip --seeds 10 0 1 2 3 4 --together 12 --compile --finishes pruned tuned "
        "firm-shifted shifted harder-shifted",
        lenet,
        ard_clip_notes,
        kind="ard_clip_",
    ),
    _entry(
        "lenet-5",
        "ARD with clipping: LeNet-5-Caffe, tuned on shifted images",
        "--recipes ard-3-clip --seeds 10 0 1 2 3 4 --together 6 --compile --finishes pruned tuned firm-shifted "
        "harder-shifted",
        lenet,
        ard_clip_notes,
        kind="ard_clip_",
    ),
    _entry(
        "lenet-300-100",
        "ARD and its Gamma hyperprior: LeNet-300-100 on MNIST",
        f"--recipes molchanov p2-svd p2-ard gamma-0.505 gamma-0.51 gamma-0.52 gamma-0.55 gamma-0.6 {_P2}",
        lenet,
        p2_large_notes,
        kind="p2_",
    ),
    _entry(
        "lenet-300-100",
        "Sparse VD with the clipping of the official code: LeNet-300-100 on MNIST",
        f"--recipes molchanov-clip --together 1 {_P2}",
        lenet,
        clip_notes,
        kind="clip_",
        device="",
    ),
    _entry(
        "lenet-5",
        "ARD: LeNet-5-Caffe on MNIST",
        f"--recipes molchanov p2-svd p2-ard --seeds 0 --together 1 {_P2}",
        lenet,
        p2_small_notes,
        kind="p2_",
    ),
    _entry("vgg", "ARD and its Gamma hyperprior: VGG on CIFAR-10", "--recipes p2-ard gamma-0.51"),
)
