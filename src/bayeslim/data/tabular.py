"""Regression tables: the UCI sets with their standard train and test splits."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.data.cache import obtain
from bayeslim.data.numpy_files import reading_arrays

UCI_NAMES = (
    "bostonHousing",
    "concrete",
    "energy",
    "kin8nm",
    "power-plant",
    "protein-tertiary-structure",
    "wine-quality-red",
)
_KEYS = ("x", "y", "train_idx", "test_idx")
_LIMIT = 1 << 30  # bytes of all arrays; the largest set (protein) has 5 MB


@dataclass(frozen=True, eq=False)
class RegressionData:
    """A regression problem, split.

    Attributes:
        x_train: float32 (N, features).
        y_train: float32 (N, 1), shaped like the output of a network with one output.
        x_test: float32 (M, features).
        y_test: float32 (M, 1).
    """

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor


@dataclass(frozen=True, eq=False)
class Standardisation:
    """The training statistics that `standardise` used; deviations of constant columns are 1.

    Attributes:
        x_mean: (1, features).
        x_std: (1, features), positive.
        y_mean: (1, 1).
        y_std: (1, 1), positive.
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor

    def restore_y(self, y: Tensor) -> Tensor:
        """Return standardised targets or predicted means in their original unit."""
        return y * self.y_std + self.y_mean


def uci(name: str, split: int, root: str | os.PathLike[str] | None = None) -> RegressionData:
    """Load a UCI regression set with one of the standard splits (90 % train, 10 % test).

    The splits are those of Hernandez-Lobato and Adams (2015) as published by Gal and Ghahramani
    (2016): 20 a set, 5 for the protein set. Looks for ``uci/<name>.npz``, see `regression_npz`;
    nothing is standardised.

    Args:
        name: one of `UCI_NAMES`.
        split: the number of the split, from 0.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.

    Returns:
        `RegressionData`.

    Example:
        >>> data = uci("concrete", split=0)  # doctest: +SKIP
        >>> data.x_train.shape, data.x_test.shape  # doctest: +SKIP
        (torch.Size([927, 8]), torch.Size([103, 8]))
    """
    if name not in UCI_NAMES:
        raise ValueError(f"`name` must be one of {', '.join(UCI_NAMES)}, got {name!r}: pass one")
    return regression_npz(obtain(name, [f"uci/{name}.npz"], None, root=root), split)


def regression_npz(path: Path, split: int) -> RegressionData:
    """Load one split of a regression table from a numpy archive.

    The archive holds ``x`` (N, features) and ``y`` (N,) or (N, 1), real numbers, and ``train_idx``
    and ``test_idx``, (splits, rows), the row numbers of each split.

    Args:
        path: the ``.npz`` file; pickled content is refused.
        split: the number of the split, from 0.

    Returns:
        `RegressionData`.

    Example:
        >>> data = regression_npz(Path("uci/energy.npz"), split=3)  # doctest: +SKIP
        >>> data.y_test.shape  # doctest: +SKIP
        torch.Size([77, 1])
    """
    arrays = _read_npz(path)
    x, y = arrays["x"], arrays["y"]
    train, test = arrays["train_idx"], arrays["test_idx"]
    if x.ndim != 2 or y.shape not in ((len(x),), (len(x), 1)):
        raise _bad(path, f"has x of the shape {x.shape} and y of the shape {y.shape}")
    if x.dtype.kind not in "iuf" or y.dtype.kind not in "iuf":
        raise _bad(path, f"has x of the type {x.dtype} and y of the type {y.dtype}")
    largest = np.finfo(np.float32).max
    if not ((np.abs(x) <= largest).all() and (np.abs(y) <= largest).all()):
        raise _bad(path, "has values that are not finite in float32")
    if train.ndim != 2 or test.ndim != 2 or len(train) != len(test) or not train.size * test.size:
        raise _bad(path, f"has index arrays of the shapes {train.shape} and {test.shape}")
    if not 0 <= split < len(train):
        raise ValueError(
            f"`split` must be from 0 to {len(train) - 1} for `{path.name}`, got {split}: pass the "
            "number of one of its splits"
        )
    rows = np.concatenate([train[split], test[split]])
    if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(x):
        raise _bad(path, f"has row numbers outside 0 to {len(x) - 1} in split {split}")
    if np.isin(train[split], test[split]).any():
        raise _bad(path, f"has rows that are both in train and test of split {split}")

    def tensor(values: NDArray[np.number]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32))

    y = y.reshape(-1, 1)
    return RegressionData(
        tensor(x[train[split]]), tensor(y[train[split]]), tensor(x[test[split]]), tensor(y[test[split]])
    )


def standardise(data: RegressionData) -> tuple[RegressionData, Standardisation]:
    r"""Shift and scale every column by its mean and deviation over the training rows.

    .. math:: \tilde x_{ij} = (x_{ij} - m_j) / s_j, \qquad
              m_j = \tfrac1N \sum_{i \in \text{train}} x_{ij}, \quad
              s_j^2 = \tfrac1N \sum_{i \in \text{train}} (x_{ij} - m_j)^2,

    and the same for y. The test rows never enter the statistics. A column that is constant in
    training is shifted only (:math:`s_j = 1`). An error in original units is :math:`s_y` times the
    standardised one, a log-density is smaller by :math:`\log s_y`.

    Args:
        data: the split to standardise.

    Returns:
        The standardised data and the statistics.

    Example:
        >>> x, y = torch.tensor([[2.0], [4.0]]), torch.tensor([[10.0], [30.0]])
        >>> scaled, statistics = standardise(RegressionData(x, y, x, y))
        >>> scaled.y_test.flatten().tolist(), statistics.y_std.item()
        ([-1.0, 1.0], 10.0)
    """
    if len(data.x_train) == 0:
        raise ValueError("`data` must have at least one training row, got 0: pass a split with some")
    x_mean, x_std = _moments(data.x_train)
    y_mean, y_std = _moments(data.y_train)
    scaled = RegressionData(
        (data.x_train - x_mean) / x_std,
        (data.y_train - y_mean) / y_std,
        (data.x_test - x_mean) / x_std,
        (data.y_test - y_mean) / y_std,
    )
    return scaled, Standardisation(x_mean, x_std, y_mean, y_std)


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    exact = values.double()
    mean = exact.mean(0, keepdim=True)
    std = exact.std(0, correction=0, keepdim=True)
    # Rounding gives a constant column a deviation near, not at, zero: compare the values themselves.
    constant = (exact == exact[:1]).all(0, keepdim=True)
    return mean.to(values.dtype), torch.where(constant, 1.0, std).to(values.dtype)


def _read_npz(path: Path) -> dict[str, NDArray[np.number]]:
    try:
        with reading_arrays(path, _LIMIT), np.load(path, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in _KEYS}
    except ValueError as error:
        raise _bad(path, f"cannot be read ({error})") from error
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise _bad(path, "holds something other than arrays")
    return found


def _bad(path: Path, problem: str) -> ValueError:
    return ValueError(
        f"`{path}` {problem}, expected an npz archive with x (N, features), y (N,), and train_idx "
        "and test_idx (splits, rows): delete it and copy it anew"
    )
