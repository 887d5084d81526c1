"""Tables of scores for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bayeslim.plain_text import visible

__all__ = ["print_scores", "shown"]

MEANING = {
    "nll": "nll (negative log-likelihood, nats)",
    "ece": "ece (calibration error, 15 bins)",
    "brier": "brier (squared error of the probabilities)",
    "rmse": "rmse (root mean squared error)",
    "coverage95": "coverage95 (part inside the 95 % interval)",
}


def shown(score: float) -> str:
    """Four decimals, or four significant digits where those would be zeros or a long row of digits.

    Example:
        >>> shown(0.9407), shown(2.5e-6), shown(1e30)
        ('0.9407', '2.5e-06', '1e+30')
    """
    return f"{score:.4f}" if score == 0 or 1e-3 <= abs(score) < 1e5 else f"{score:.4g}"


def print_scores(title: str, scores: dict[str, dict[str, float]]) -> None:
    """Print scores, one column per data set or network, one row per score."""
    # They name files: text, not markup.
    table = Table("", *(escape(visible(name)) for name in scores), title=escape(visible(title)))
    for name in next(iter(scores.values())):
        table.add_row(MEANING.get(name, name), *(shown(found[name]) for found in scores.values()))
    Console().print(table)
