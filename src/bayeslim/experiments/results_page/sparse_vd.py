"""Notes on Sparse VD."""

from __future__ import annotations

from statistics import mean

from bayeslim.experiments.results_page.entry import Record, seeds_of

__all__ = ["lenet", "lenet_notes"]


def lenet(record: Record) -> str:
    """What was run."""
    epochs = sorted({recipe["epochs"] for recipe in record["recipes"].values()})
    settings = record["settings"]
    return f"""{seeds_of(record)} seeds, mean ± standard deviation. {" or ".join(map(str, epochs))} epochs of batch
    {settings["batch_size"]}, pixels / 255 minus the mean image. "Tuned", "harder" and "hardest" prune by
    ln alpha > 3, 1 and -1 and train the means that are left for {settings["tune_epochs"]} more epochs. Compression
    counts weights; all recipes and finishes that were run with these seeds are shown."""


def lenet_notes(record: Record) -> str:
    """How near the goal is, and where we stand beside the paper."""
    paper, goal = record["paper"]["molchanov"], record["goal"]
    found = {
        (run["recipe"], finish): [other[finish] for other in record["runs"] if other["recipe"] == run["recipe"]]
        for run in record["runs"]
        for finish in record["finishes"]
        if "failed" not in run[finish]
    }
    points = {
        names: tuple(mean(one[key] for one in results) for key in ("error", "compression"))
        for names, results in found.items()
    }
    small = {names: point for names, point in points.items() if point[1] >= goal["compression"]}
    (recipe, finish), (error, compression) = min(small.items(), key=lambda item: item[1][0])
    better = "better on both" if error < paper["error"] and compression > paper["compression"] else "not better on both"
    return f"""
- The best error at {goal["compression"]} times or more is that of `{recipe}`, {finish}: {error:.2f} % at
  {compression:.0f} times. Molchanov et al. 2017 report {paper["error"]} % at {paper["compression"]}: ours is {better}.
- The goal of {goal["error"]:.2f} % is {"met" if error <= goal["error"] else f"missed by {error - goal['error']:.2f}"}
  points."""
