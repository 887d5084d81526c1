"""All posteriors and seeds of a part as one record, which an interrupted run goes on from and which merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayeslim.experiments.k_tied.paper import PAPER
from bayeslim.experiments.k_tied.part import CHOICES, Part, Splits, posterior_name
from bayeslim.experiments.k_tied.training import Say, silent
from bayeslim.experiments.record import begun, check_joinable

__all__ = ["merged", "run"]


def run(
    part: Part,
    data: Splits,
    *,
    earlier: dict[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] = lambda record: None,
    checkpoints: Path | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Train and score every posterior and seed of a part.

    Args:
        part: settings.
        data: on the device to use.
        earlier: a record with the same settings, whose runs are kept and not computed again.
        save: called with the record whenever it has grown.
        checkpoints: folder for the state of the training under way; the MNIST part has none.
        say: told what was found.

    Returns:
        A record for JSON.

    Raises:
        ValueError: if `earlier` was made with other settings.

    Example:
        >>> record = run(*Mnist.quick("cpu"))
    """
    facts = {"part": part.name, "config": asdict(part), "paper": PAPER[part.name]}
    record = begun(facts, data.train[0].device, earlier, merged)
    for k, seeds in _left(part, record["runs"]):
        folder = checkpoints and checkpoints / "-".join([part.name, posterior_name(k), *map(str, seeds)])
        label = f"{part.name} {posterior_name(k)} seeds {', '.join(map(str, seeds))}"
        for found in part.measured(k, seeds, data, folder, lambda text, label=label: say(f"{label}: {text}")):
            record["runs"].append(found)
            scores = ", ".join(f"{name} {value:.4g}" for name, value in found["annealed"].items())
            say(f"{part.name} {found['posterior']} seed {found['seed']}: {scores} in {found['seconds']:.0f} s")
        save(record)
    return record


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One record out of several that differ in their seeds and ranks only; a run that is in two counts once.

    Raises:
        ValueError: if they are of different parts or settings.

    Example:
        >>> merged([json.loads(Path(name).read_text()) for name in ("seed0.json", "seed1.json")])
    """
    first = records[0]
    for other in records[1:]:
        # A record without a part is one of MNIST, written before there were others.
        theirs, ours = (one["config"] | {"part": one.get("part", "mnist")} for one in (first, other))
        check_joinable(theirs, ours, CHOICES)
    joined = {key: sorted({value for one in records for value in one["config"][key]}) for key in CHOICES}
    runs = {(run["seed"], run["posterior"]): run for record in records for run in record["runs"]}
    return records[-1] | {"config": first["config"] | joined, "runs": list(runs.values())}


def _left(part: Part, runs: Sequence[dict[str, Any]]) -> list[tuple[int, tuple[int, ...]]]:
    """The ranks and seeds to train, one by one or all seeds of a rank side by side."""
    done = {(run["posterior"], run["seed"]) for run in runs}
    left = [(k, seed) for seed in part.seeds for k in part.ranks if (posterior_name(k), seed) not in done]
    if not part.side_by_side:
        return [(k, (seed,)) for k, seed in left]
    groups = [(k, tuple(seed for own, seed in left if own == k)) for k in part.ranks]
    return [(k, seeds) for k, seeds in groups if seeds]
