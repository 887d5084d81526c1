"""Sample weights: examples that count several times, or in part."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.gaussian import Gaussian as GaussianOutput
from bayeslim.likelihoods import Categorical, Gaussian

__all__ = ["Examples", "WeightedCategorical", "WeightedGaussian", "checked_mean", "merged"]

MOST = 1e15
"""The most that the KL may count beside a row of mean weight; beyond, the data are lost in rounding."""


class Examples(NamedTuple):
    """Training rows that differ from each other, and how often each counts."""

    x: NDArray[Any]
    """(rows, features)."""
    y: NDArray[Any]
    """(rows, targets); class numbers for a classifier."""
    weight: NDArray[Any]
    """(rows,), above 0."""


def merged(x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any]) -> Examples:
    """Let equal rows count as one with the sum of their weights, and sort.

    `sum_i w_i ln p(y_i | x_i, W)` stays what it is. A weight of 2 and a row given twice become the same problem, and
    the order of the rows has no influence on the fit.

    Args:
        x: (N, features).
        y: (N, targets).
        weight: (N,), above 0.

    Example:
        >>> merged(np.zeros((3, 1)), np.array([[1.0], [1.0], [2.0]]), np.ones(3)).weight
        array([2., 1.])
    """
    rows, index = np.unique(np.hstack([x, y]), axis=0, return_inverse=True)
    features = x.shape[1]
    return Examples(rows[:, :features].astype(x.dtype), rows[:, features:], np.bincount(index.ravel(), weight))


def checked_mean(weight: NDArray[Any], kl_weight: float) -> float:
    """The mean weight, against which the KL counts.

    Args:
        weight: (rows,), above 0.
        kl_weight: of the KL.

    Raises:
        ValueError: if it is so small or large that the data or the KL are nothing beside the other.
    """
    largest = float(weight.max())
    mean = largest * float(np.mean(weight / largest))
    if not np.isfinite(kl_weight / mean) or kl_weight / mean > MOST:
        raise ValueError(
            f"`sample_weight` has the mean {mean:.3g}, beside which the KL of `kl_weight`={kl_weight:.3g} leaves "
            "nothing of the data: a weight of 1 is one row, so multiply the weights"
        )
    return mean


class WeightedGaussian(Gaussian):
    """`Gaussian` for training: the last column of `y` is the example's weight, which multiplies its nll.

    Outside `expected_nll`, targets are plain.
    """

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """The weight times the nll of the other columns."""
        return y[:, -1] * super().expected_nll(output, y[:, :-1])

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Targets as they are: the estimator has checked them."""
        return y


class WeightedCategorical(Categorical):
    """`Categorical` for training: `y` holds the class number and the weight, which multiplies the nll.

    Outside `expected_nll`, targets are plain.
    """

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """The weight times the nll of the class."""
        return y[:, 1] * super().expected_nll(output, y[:, 0].long())

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Targets as they are: the estimator has checked them."""
        return y
