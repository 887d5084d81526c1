"""What a perfect implementation would cost: the least operations and bytes, from the sizes of a network.

A step is products of matrices and passes over tensors of the weights' size. A product of (B, i) and (i, o) takes `2Bio`
operations and touches its three matrices once; forward, gradient of the weight and gradient of the input are one such
product each, the last not in the first layer. Elementwise work is taken to be fused into the products and passes, and
noise to cost nothing: `normals` says how many numbers there are, for those who want to add what drawing them takes.
Products and passes follow each other, so

    seconds = flops / rate of products + bytes / rate of copies,

both rates as measured on the machine at the sizes of the network (`speeds.py`).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bayeslim.step_costs import OUR_PRODUCTS

KINDS: dict[str, tuple[int, int, int]] = {
    # Products in the first layer and in the others; passes over the weights, reads and writes of float32.
    # Adam reads a parameter, its gradient and two averages and writes all but the gradient: 7.
    "deterministic": (1, 1, 7),
    # Adam twice; draw (read mean and scale, write weight); gradient (read both and the weight's, write both).
    "weight_sample": (1, 1, 14 + 3 + 5),
    # Adam twice; variance (read scale, write); gradient (read two gradients and both parameters, write both).
    "local_reparam": (2, 2, 14 + 2 + 6),
    "flipout": (2, 2, 14 + 2 + 6),
    # As local_reparam, with the second moment of the weight beside its variance, where inputs are uncertain.
    "moments": (2, 3, 14 + 4 + 7),
    # Adam once; draw (read mean, write weight); gradient (read it and the mean, write): the scales are small.
    "k_tied": (1, 1, 7 + 2 + 3),
}
KIND_OF = {
    "deterministic": "deterministic",
    OUR_PRODUCTS: "deterministic",
    "graves": "weight_sample",
    "graves, local_reparam": "local_reparam",
    "graves, flipout": "flipout",
    "bbb": "weight_sample",
    "molchanov": "local_reparam",
    "kingma": "local_reparam",
    "ard": "local_reparam",
    "gamma": "local_reparam",
    "k-tied": "k_tied",
    "vdp": "moments",
}
"""Which kind of step the networks of `bayeslim.step_costs` take."""


@dataclass(frozen=True)
class Work:
    """Operations, bytes and standard normal numbers."""

    flops: float = 0.0
    bytes: float = 0.0
    normals: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.normals + other.normals)

    def __mul__(self, count: float) -> "Work":
        return Work(self.flops * count, self.bytes * count, self.normals * count)

    def seconds(self, speeds: Mapping[str, float], noise: bool = False) -> float:
        """The time at these rates, with torch's normal numbers or without."""
        least = self.flops / speeds["flops"] + self.bytes / speeds["bytes"]
        return least + self.normals / speeds["normals"] if noise else least


def product(rows: int, columns: int, outputs: int, width: int = 4) -> Work:
    """One matrix product of numbers of `width` bytes."""
    return Work(2 * rows * columns * outputs, width * (rows * columns + columns * outputs + rows * outputs))


def step_work(sizes: Sequence[int], batch: int, kind: str, width: int = 4) -> Work:
    """A training step of a perceptron."""
    first, others, passes = KINDS[kind]
    total = Work()
    for index, (a, b) in enumerate(itertools.pairwise(sizes)):
        count = 2 * first if index == 0 else 3 * others
        drawn = {"deterministic": 0, "moments": 0, "local_reparam": batch * b}.get(kind, a * b)
        total += product(batch, a, b, width) * count + Work(0, 4 * passes * a * b, drawn)
    return total


def predict_work(sizes: Sequence[int], images: int, samples: int, drawing: bool = True) -> Work:
    """A prediction by drawing outputs, exact for perceptrons; without drawing, `samples` deterministic passes.

    The first layer's means and variances are the same for all samples. Later layers take two products per sample, and
    every output is written once per sample.
    """
    total = Work()
    for index, (a, b) in enumerate(itertools.pairwise(sizes)):
        one = product(images, a, b)
        if not drawing:
            total += one * samples
        elif index == 0:
            total += one * 2 + Work(0, 3 * 4 * images * b, images * b) * samples
        else:
            total += (one * 2 + Work(0, 0, images * b)) * samples
    return total


def step_seconds(record: Mapping[str, object], name: str, noise: bool = False) -> float:
    """The time of a perfect step on the machine of a record of `train_step.py`."""
    sizes, batch, speeds = record["network"], record["batch"], record["speeds"]
    assert isinstance(sizes, list) and isinstance(batch, int) and isinstance(speeds, dict)
    width = 2 if record["autocast"] == "bfloat16" else 4
    return step_work(sizes, batch, KIND_OF[name], width).seconds(speeds, noise)
