"""All methods and seeds of an experiment as one record, which an interrupted run goes on from and which merges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayeslim.experiments.record import begun, check_joinable
from bayeslim.experiments.vision.experiment import CHOICES, Experiment
from bayeslim.experiments.vision.images import Splits
from bayeslim.experiments.vision.training import Say, silent

__all__ = ["merged", "run"]


def run(
    experiment: Experiment,
    data: Splits,
    *,
    earlier: dict[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] = lambda record: None,
    checkpoints: Path | None = None,
    say: Say = silent,
) -> dict[str, Any]:
    """Train and score every method and seed, all methods of a seed before the next.

    Args:
        experiment: settings.
        data: on the device to use.
        earlier: a record with the same settings, whose runs are kept and not computed again.
        save: called with the record whenever it has grown.
        checkpoints: folder for the state of trainings under way.
        say: told what was found.

    Returns:
        A record for JSON.

    Raises:
        ValueError: if `earlier` was made with other settings.

    Example:
        >>> record = run(*Samplers.quick("cpu"))
    """
    facts: dict[str, Any] = {
        "experiment": experiment.name,
        "config": asdict(experiment) | {"images": [len(data.train), len(data.test)]},
        "paper": experiment.paper,
        "tolerance": experiment.tolerance,
    }
    record = begun(facts, data.train.device, earlier, merged)
    done = {(one["method"], one["seed"]) for one in record["runs"]}
    for method, seed in ((method, seed) for seed in experiment.seeds for method in experiment.methods):
        if (method, seed) in done:
            continue
        label = f"{method} seed {seed}"
        folder = checkpoints and checkpoints / f"{experiment.name}-{method}-{seed}"
        found = experiment.measured(method, seed, data, folder, lambda text, label=label: say(f"{label}: {text}"))
        record["runs"].append({"method": method, "seed": seed} | found)
        say(f"{label}: accuracy {found['accuracy']:.2f} %, NLL {found['nll']:.4f}")
        save(record)
    return record


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One record out of several that differ in `CHOICES` only; a method and seed that is in two counts once.

    Raises:
        ValueError: if they are of different experiments or settings.

    Example:
        >>> merged([json.loads(Path(name).read_text()) for name in ("seed0.json", "seed1.json")])
    """
    first = records[0]
    for other in records[1:]:
        theirs, ours = (one["config"] | {"experiment": one["experiment"]} for one in (first, other))
        check_joinable(theirs, ours, CHOICES)
    methods = list(dict.fromkeys(name for record in records for name in record["config"]["methods"]))
    seeds = sorted({seed for record in records for seed in record["config"]["seeds"]})
    runs = {(one["method"], one["seed"]): one for record in records for one in record["runs"]}
    config = records[-1]["config"] | {"methods": methods, "seeds": seeds}
    return records[-1] | {"config": config, "runs": list(runs.values())}
