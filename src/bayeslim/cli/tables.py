"""Tables of scores for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bayeslim.checks.text import visible
from bayeslim.pruning.curve import shown

__all__ = ["print_scores"]

MEANING = {
    "nll": "nll (negative log-likelihood, nats)",
    "ece": "ece (calibration error, 15 bins)",
    "brier": "brier (squared error of the probabilities)",
    "rmse": "rmse (root mean squared error)",
    "coverage95": "coverage95 (part inside the 95 % interval)",
}


def print_scores(title: str, scores: dict[str, dict[str, float]]) -> None:
    """Print scores, one column per data set or network, one row per score."""
    # They name files: text, not markup.
    table = Table("", *(escape(visible(name)) for name in scores), title=escape(visible(title)))
    for name in next(iter(scores.values())):
        table.add_row(MEANING.get(name, name), *(shown(found[name]) for found in scores.values()))
    Console().print(table)
