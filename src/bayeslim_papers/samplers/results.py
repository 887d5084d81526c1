"""What results.md takes its tables and numbers from."""

from __future__ import annotations

from statistics import mean

from bayeslim_papers.record import Record
from bayeslim_papers.samplers.images import table as images
from bayeslim_papers.samplers.mnist import table as mnist
from bayeslim_papers.samplers.mnist import times_less
from bayeslim_papers.samplers.variable_selection import table as selected
from bayeslim_papers.tables import by_method

__all__ = ["chosen_score", "exact", "images", "mnist", "same_restarts", "selected", "times_less"]


def exact(record: Record, chosen: bool) -> dict[str, int]:
    """On how many data sets the chosen restart, or the first one, has selected the true inputs and no other."""
    return {
        method: sum(run["restarts"][run["chosen"] if chosen else 0]["selected"] == record["support"] for run in runs)
        for method, runs in by_method(record).items()
    }


def chosen_score(record: Record, method: str) -> float:
    """Of the chosen restarts, on average."""
    return mean(run["restarts"][run["chosen"]]["score"] for run in by_method(record)[method])


def same_restarts(record: Record) -> tuple[int, int]:
    """In how many restarts DFP and DPF end as one network, and of how many."""
    kept, fed = ([one for run in by_method(record)[name] for one in run["restarts"]] for name in ("DFP", "DPF"))
    return sum(one == other for one, other in zip(kept, fed, strict=True)), len(kept)
