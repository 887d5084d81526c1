"""What results.md takes its tables and numbers from."""

from __future__ import annotations

import math
from typing import Any

from bayeslim_papers.k_tied.paper import rows
from bayeslim_papers.k_tied.table import table
from bayeslim_papers.record import Record
from bayeslim_papers.tables import by

__all__ = ["cost", "gaps", "kl_by_adam_alone", "rows", "table"]


def gaps(record: Record, score: str) -> list[float]:
    """Our averages less the paper's in figure 6, from the least to the greatest."""
    place = ("nelbo", "nll", "accuracy").index(score)
    ours = by(record, f"annealed/{score}", "posterior")
    paper = rows(record.get("part", "mnist"), "figure 6")
    return sorted(value - paper[name][place] for name, value in ours.items())


def cost(record: Record, rank: int) -> float:
    """What cutting the scales of mean-field to a rank adds to its -ELBO."""
    whole, cut = (
        by(record, path, "posterior", posterior="mean-field")
        for path in ("annealed/nelbo", f"truncated/rank {rank}/nelbo")
    )
    return cut["mean-field"] - whole["mean-field"]


def kl_by_adam_alone(config: dict[str, Any]) -> list[str]:
    """Nats an image at the probed steps, if every log scale grew by the learning rate in every step.

    `(weights / images) (ln(prior_std / scale) - 0.5 - lr step)`: the KL of a small scale, its mean left out.
    """
    first, second = config["sizes"][:2]
    weights = first * second + second**2 + second * 10
    start = math.log(config["prior_std"] / config["probe_scale"]) - 0.5
    return [f"{weights / 50_000 * (start - config['probe_lr'] * step):.1f}" for step in config["probe_steps"]]
