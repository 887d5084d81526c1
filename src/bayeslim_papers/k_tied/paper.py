"""The numbers of arXiv 2002.02655, part by part."""

from __future__ import annotations

from typing import Any

__all__ = ["PAPER", "STANDARD_ERRORS", "rows"]

PAPER: dict[str, dict[str, dict[str, Any]]] = {
    "mnist": {
        "figure 6 left (test -ELBO, NLL, accuracy %)": {
            "mean-field": (0.501, 0.133, 96.8),
            "1-tied": (0.539, 0.155, 96.1),
            "2-tied": (0.520, 0.129, 96.8),
            "3-tied": (0.497, 0.120, 96.9),
        },
        "figure 6 right (SNR at 1000, 5000, 9000 steps; validation -ELBO)": {
            "mean-field": ((4.13, 4.45, 3.21), (42.16, 26.52, 15.39)),
            "1-tied": ((5840, 158, 5.3), (43.11, 14.85, 2.06)),
            "2-tied": ((7500, 140, 4.3), (42.74, 13.97, 1.82)),
            "3-tied": ((7000, 117, 4.1), (42.63, 13.61, 1.80)),
        },
        "table 2, MNIST (-ELBO, NLL, accuracy %)": {
            "mean-field": (0.431, 0.100, 97.6),
            "rank 1": (3.41, 0.677, 93.6),
            "rank 2": (0.456, 0.107, 97.6),
            "rank 3": (0.450, 0.106, 97.6),
        },
    },
    "cifar10": {},
    "cifar100": {
        "figure 6 middle (test -ELBO, NLL, accuracy %)": {
            "mean-field": (3.72, 2.16, 43.9),
            "1-tied": (3.65, 2.12, 45.5),
            "2-tied": (3.76, 2.15, 44.3),
            "3-tied": (3.73, 2.13, 44.3),
        },
        "table 2, CIFAR-100 (-ELBO, NLL, accuracy %)": {
            "mean-field": (3.83, 2.23, 42.1),
            "rank 1": (4.33, 2.30, 41.7),
            "rank 2": (3.88, 2.24, 42.2),
            "rank 3": (3.86, 2.24, 42.1),
        },
    },
    "imdb": {
        "figure 6, LSTM (test -ELBO, NLL, accuracy %)": {
            "mean-field": (0.538, 0.478, 79.5),
            "1-tied": (0.592, 0.512, 77.6),
            "2-tied": (0.560, 0.484, 78.2),
            "3-tied": (0.550, 0.491, 78.8),
        },
        "table 2, IMDB (-ELBO, NLL, accuracy %)": {
            "mean-field": (0.536, 0.493, 80.1),
            "rank 1": (0.687, 0.491, 80.0),
            "rank 2": (0.621, 0.494, 80.1),
            "rank 3": (0.595, 0.493, 80.1),
        },
    },
    "resnet": {
        "table 3 (-ELBO, NLL, accuracy %, Brier - 1, ECE) and table 5 (parameters)": {
            "mean-field": (122.61, 0.495, 83.5, -0.761, 0.0477, 9_814_026),
            "rank 1": (122.57, 0.658, 81.7, -0.695, 0.1642, 4_929_711),
            "rank 2": (122.77, 0.503, 83.2, -0.758, 0.0540, 4_946_964),
            "rank 3": (122.67, 0.501, 83.2, -0.758, 0.0541, 4_964_217),
        },
    },
}
"""Part -> what it shows and where -> row -> numbers. The paper has no CNN on CIFAR-10."""

STANDARD_ERRORS: dict[str, tuple[float, float, float]] = {
    "mnist": (0.0063, 0.0043, 0.19),
    "cifar100": (0.019, 0.016, 0.50),
    "imdb": (0.0054, 0.0052, 0.26),
    "resnet": (0.012, 0.0080, 0.39),
}
"""Part -> the paper's largest standard errors of -ELBO, NLL and accuracy in figure 6, for the ResNet in table 3; taken
over test examples, not over seeds."""


def rows(part: str, source: str) -> dict[str, Any]:
    """The rows of the figure or table of `part` whose name starts with `source`; none where the paper has none.

    Example:
        >>> rows("imdb", "table")["rank 2"]
        (0.621, 0.494, 80.1)
    """
    return next((found for name, found in PAPER[part].items() if name.startswith(source)), {})
