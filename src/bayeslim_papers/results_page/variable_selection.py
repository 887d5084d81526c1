"""The simulated problems of variable selection on the page: records, commands and notes."""

from __future__ import annotations

from statistics import mean

from bayeslim_papers.results_page.entry import Entry, Record, seeds_of
from bayeslim_papers.samplers.variable_selection import table

__all__ = ["ABOUT", "ENTRIES"]

ABOUT = """The simulated examples of arXiv 2210.12957, table 4: correlated inputs, 1000, 2000 and 1000 of them, of which
5, 5 and 4 matter; example 1 in the form its notebooks draw from (`--variant` chooses the others). "Best of 5" is the
restart with the smallest loss on a tenth of the training rows; "single" is the first restart. The test set is drawn
from another seed than the training set (the paper's code uses one for both). FDR and FNDR are the parts of wrong inputs
among the selected and of right ones among the rest; "exact" counts the data sets whose inputs were all found and no
other. The paper prints 4 inputs for example 1 and 5 for example 3; its notebooks select 5 and 4, the true numbers."""

SECONDS = {1: "58 s", 2: "335 s beside other runs", 3: "246 s beside other runs"}
"""Noted when they were run; the records hold no times."""


def example(record: Record) -> str:
    """What was run."""
    config = record["config"]
    return f"""One H200, {seeds_of(record)} data sets, DFP and DPF, {SECONDS[config["example"]]};
    {len(record["support"])} inputs matter, {config["train_rows"]} rows, {config["recipe"]["epochs"]} epochs."""


def notes(record: Record) -> str:
    """How often the support was found, and the error beside the paper's."""
    total = seeds_of(record)
    best, single = ({name: _exact(record, name, chosen) for name in ("DFP", "DPF")} for chosen in (True, False))
    binary = record["config"]["example"] == 3
    measure, unit = ("accuracy", " %") if binary else ("mean squared error", "")
    scores = " and ".join(
        f"{_score(record, name):.4g}{unit} (paper {record['paper'][name][0]:g}{unit})" for name in ("DFP", "DPF")
    )
    noise = " The noise has variance 1, which no predictor can go below." if record["config"]["example"] == 1 else ""
    return f"""With restarts the inputs are found exactly on {best["DFP"]} (DFP) and {best["DPF"]} (DPF) of {total} data
    sets; a single run selects others on {total - single["DFP"]} and {total - single["DPF"]} of them. The {measure} is
    {scores}.{noise} {_same(record)}"""


def _same(record: Record) -> str:
    """How far the two methods are evidence of each other."""
    kept, fed = ([run["restarts"] for run in record["runs"] if run["method"] == name] for name in ("DFP", "DPF"))
    pairs = [
        (one, other) for own, theirs in zip(kept, fed, strict=True) for one, other in zip(own, theirs, strict=True)
    ]
    return f"""DFP and DPF start alike and see the same noise: in {sum(one == other for one, other in pairs)} of
    {len(pairs)} restarts feedback brings nothing back, and they end as one network."""


def _picked(record: Record, method: str, chosen: bool) -> list[Record]:
    runs = [run for run in record["runs"] if run["method"] == method]
    return [run["restarts"][run["chosen"] if chosen else 0] for run in runs]


def _exact(record: Record, method: str, chosen: bool) -> int:
    return sum(one["selected"] == record["support"] for one in _picked(record, method, chosen))


def _score(record: Record, method: str) -> float:
    return mean(one["score"] for one in _picked(record, method, chosen=True))


def _entry(number: int) -> Entry:
    command = f"bayeslim reproduce variable-selection --example {number} --device cuda"
    return Entry(
        f"variable_selection_{number}", f"Variable selection, example {number}", command, table, example, notes
    )


ENTRIES: tuple[Entry, ...] = (_entry(1), _entry(2), _entry(3))
