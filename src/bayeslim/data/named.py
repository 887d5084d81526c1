"""Data sets by name, split and prepared, for the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bayeslim.checks.names import did_you_mean
from bayeslim.checks.packages import check_installed
from bayeslim.data.images import ImageData, cifar10, cifar100, fashion_mnist, mnist
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.problems import Problem, Splits, from_images, from_path, from_table, split_rows
from bayeslim.data.synthetic import blundell_curve, moons
from bayeslim.data.tables import Column, Table, feature_names
from bayeslim.data.tabular import UCI_NAMES, uci
from bayeslim.data.target import Target, Task
from bayeslim.data.text import imdb
from bayeslim.data.text_inputs import TextInputs

__all__ = ["NAMED", "load_problem"]

IMDB_WORDS, IMDB_LENGTH = 20_000, 100
"""Vocabulary and words per review, as in Keras' example."""


def _digits(seed: int, rows: int | None) -> Problem:
    check_installed("sklearn", "the data set digits comes with scikit-learn", "sklearn")
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 16
    return from_images(images, True, [str(label) for label in labels], "digit", "classes", seed, rows, "digits")


def _images(name: str, load: Callable[..., ImageData], seed: int, rows: int | None) -> Problem:
    train, test = load("train", progress=True), load("test", progress=True)
    labels = [train.classes[index] for index in (*train.y.tolist(), *test.y.tolist())]
    given = np.arange(len(train), len(labels))
    both = torch.cat([train.x, test.x])
    return from_images(both, True, labels, "class", "classes", seed, rows, name, given)


def _uci(name: str, seed: int, rows: int | None) -> Problem:
    data = uci(name, split=0)
    x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
    given = np.arange(len(data.x_train), len(x))
    return from_table(_table(x, y), "y", "regression", False, seed, rows, f"uci/{name}", given)


def _moons(seed: int, rows: int | None) -> Problem:
    x, y = moons(2000, noise=0.15, seed=seed)
    return from_table(_table(x, y), "y", "classes", False, seed, rows, "moons")


def _curve(seed: int, rows: int | None) -> Problem:
    return from_table(_table(*blundell_curve(1000, seed=seed)), "y", "regression", False, seed, rows, "blundell-curve")


def _imdb(seed: int, rows: int | None) -> Problem:
    train, test = imdb("train", progress=True), imdb("test", progress=True)
    texts, y = (*train.texts, *test.texts), torch.cat([train.y, test.y])
    # Negative reviews come first: a short test part must be drawn, too.
    given = split_rows(len(test), seed)[0] + len(train)
    parts = split_rows(len(texts), seed, rows, given if rows else np.arange(len(train), len(texts)))
    inputs = TextInputs.fitted((texts[row] for row in parts[0]), IMDB_WORDS, IMDB_LENGTH)
    pairs = [(inputs.encode([texts[row] for row in part]), y[torch.from_numpy(part)]) for part in parts]
    preprocessing = Preprocessing(inputs, Target("sentiment", ("negative", "positive")), "imdb")
    sizes = ", ".join(f"{len(part)} {use}" for part, use in zip(parts, ("train", "validation", "test"), strict=True))
    notes = (f"reviews: {sizes}", f"inputs: the last {IMDB_LENGTH} words, {inputs.vocabulary} different ones")
    return Problem(Splits(*pairs), preprocessing, notes)


def _table(x: torch.Tensor, y: torch.Tensor) -> Table:
    columns: dict[str, Column] = {
        name: x[:, index].double().numpy() for index, name in enumerate(feature_names(x.shape[1]))
    }
    columns["y"] = y.reshape(-1).double().numpy()
    return Table(columns)


NAMED: dict[str, Callable[[int, int | None], Problem]] = {
    "digits": _digits,
    "mnist": functools.partial(_images, "mnist", mnist),
    "fashion-mnist": functools.partial(_images, "fashion-mnist", fashion_mnist),
    "cifar10": functools.partial(_images, "cifar10", cifar10),
    "cifar100": functools.partial(_images, "cifar100", cifar100),
    "imdb": _imdb,
    "moons": _moons,
    "blundell-curve": _curve,
    **{f"uci/{name}": functools.partial(_uci, name) for name in UCI_NAMES},
}
"""Data set by name -> what loads it, given the seed of the split and the most rows to use."""


def load_problem(
    data: str,
    *,
    target: str | None = None,
    task: Task | None = None,
    impute: bool = False,
    seed: int = 0,
    rows: int | None = None,
) -> Problem:
    """Load a set by name, or a user's own file or folder.

    Args:
        data: a name of `NAMED`, or a path (`./mnist` where both exist).
        target: the column of a table to predict.
        task: None infers it.
        impute: fill in missing inputs of a table.
        seed: of the split, and of synthetic data.
        rows: use at most this many rows.

    Raises:
        FileNotFoundError: if `data` is neither a name nor a path; the message lists names like it.

    Example:
        >>> load_problem("moons", seed=0).splits.train[0].shape
        torch.Size([1400, 2])
    """
    if data in NAMED:
        if target is not None or task is not None or impute:
            raise ValueError(f"--target, --task and --impute are for your own tables; {data} needs none of them")
        return NAMED[data](seed, rows)
    if not Path(data).exists():
        hint = "" if Path(data).suffix else did_you_mean(data, NAMED)  # with a suffix a file was meant
        raise FileNotFoundError(
            f"{data!r} is neither a file or folder nor a known data set: {hint}The sets are {', '.join(NAMED)}"
        )
    return from_path(Path(data), target, task, impute, seed, rows)
