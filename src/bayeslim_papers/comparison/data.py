"""The data of the comparison: UCI regressions with their standard splits, MNIST and Fashion-MNIST."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

import bayeslim as bl
from bayeslim.data.tabular import standardise
from bayeslim.likelihoods import Gaussian, Likelihood

__all__ = [
    "IMAGES",
    "SMALL",
    "Case",
    "Data",
    "image_cases",
    "likelihood_for",
    "parts",
    "sizes_for",
    "smaller",
    "uci_cases",
]

Data = tuple[Tensor, Tensor]

SMALL = ("bostonHousing", "concrete", "energy", "wine-quality-red")
"""The UCI sets of fewer than 1600 rows."""
IMAGES = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
"""An image set -> where its outliers come from."""


class Case(NamedTuple):
    """What one network is trained and judged on: a split of a table, or an image set with a seed."""

    seed: int
    """Of everything random; for a table also the number of the split."""
    train: Data
    test: Data
    outliers: Tensor | None = None
    unit: float = 1.0
    """What 1 in the standardised targets is in the original ones."""


def uci_cases(name: str, splits: tuple[int, ...], root: Path | None, device: str = "cpu") -> list[Case]:
    """One UCI set with some of its splits, standardised by the training rows of each; the sets have 20, protein 5."""
    cases: list[Case] = []
    for split in splits:
        data, statistics = standardise(bl.data.uci(name, split, root))
        x, y, x_test, y_test = (p.to(device) for p in (data.x_train, data.y_train, data.x_test, data.y_test))
        cases.append(Case(split, (x, y), (x_test, y_test), unit=statistics.y_std.item()))
    return cases


def image_cases(name: str, seeds: tuple[int, ...], root: Path | None, device: str = "cpu") -> list[Case]:
    """MNIST or Fashion-MNIST as vectors, standardised by the training pixels, with the other as outliers."""
    load = {"mnist": bl.data.mnist, "fashion-mnist": bl.data.fashion_mnist}
    train, test = (load[name](split, root=root) for split in ("train", "test"))
    strange = load[IMAGES[name]]("test", root=root)
    centre, spread = train.x.mean(), train.x.std()
    x, x_test, outliers = (((part.x - centre) / spread).flatten(1).to(device) for part in (train, test, strange))
    y, y_test = train.y.to(device), test.y.to(device)
    return [Case(seed, (x, y), (x_test, y_test), outliers) for seed in seeds]


def parts(case: Case, validation: float = 0.2) -> tuple[Data, Data]:
    """The training rows as one part to train on and one to choose by, drawn by the seed."""
    x, y = case.train
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(case.seed)).to(x.device)
    held = math.ceil(validation * len(x))
    return (x[order[held:]], y[order[held:]]), (x[order[:held]], y[order[:held]])


def smaller(case: Case, train: int = 1000, test: int = 200) -> Case:
    """The first rows of a case."""
    outliers = None if case.outliers is None else case.outliers[:test]
    (x, y), (x_test, y_test) = case.train, case.test
    return case._replace(train=(x[:train], y[:train]), test=(x_test[:test], y_test[:test]), outliers=outliers)


def likelihood_for(data: Data) -> Likelihood:
    """Classes, or one Gaussian noise that is learned with the weights."""
    return Gaussian(noise=1.0, learn_noise=True) if data[1].is_floating_point() else bl.Categorical()


def sizes_for(data: Data, hidden: tuple[int, ...]) -> list[int]:
    """Widths from input to output."""
    x, y = data
    return [x.shape[1], *hidden, 1 if y.is_floating_point() else int(y.max()) + 1]
