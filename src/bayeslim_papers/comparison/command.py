"""The comparison of all methods: settings, and how a method is chosen, trained and judged."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from bayeslim.data.tabular import UCI_NAMES
from bayeslim.machine import machine
from bayeslim_papers.command import command
from bayeslim_papers.comparison.data import IMAGES, SMALL, Case, image_cases, parts, smaller, uci_cases
from bayeslim_papers.comparison.judge import costs, judged, validation_nll
from bayeslim_papers.comparison.methods import METHODS
from bayeslim_papers.comparison.results import table
from bayeslim_papers.comparison.training import Job
from bayeslim_papers.experiment import SILENT, Experiment, Log, Member, Options, seeds_together
from bayeslim_papers.record import Record

__all__ = ["Comparison", "main"]

IMAGE_SETTINGS: dict[str, Any] = {"hidden": (300, 100), "epochs": 50, "batch_size": 128, "lr": 1e-3, "sparsity": 0.9}
QUICK: dict[str, Any] = {"epochs": 8, "members": 2, "samples": 10, "per_cycle": 1, "rounds": 3}
DIVERGED = "diverged"
Cases = dict[str, list[Case]]
"""For every data set its splits or seeds."""


@dataclass(frozen=True)
class Comparison(Experiment):
    """Which method to choose: all of them, and the usual baselines, on the same data, network and epochs.

        bayeslim reproduce comparison --data uci --root DATA --splits 0 1 2 3 4 --out results/comparison_uci.json
        bayeslim reproduce comparison --data mnist --root DATA --device cuda --out results/comparison_mnist.json

    UCI regressions (50 hidden ReLU units, standard splits, one learned noise), and MNIST or Fashion-MNIST
    (LeNet-300-100, the other one as outliers, told apart by predictive entropy):

    - map: Adam, Gaussian prior; mc-dropout: dropout after every hidden layer, 100 samples; ensemble: five of map;
      laplace: Kronecker-factored, around map, 100 samples;
    - graves, bbb, molchanov, kingma, ard, gamma, k-tied, vdp: `bl.METHODS`, 100 samples; vdp predicts in one pass;
    - cvadam, sghmc: twelve snapshots of four cycles; dfp: cvadam with spike-and-slab pruning on the way, three
      snapshots.

    One hyper-parameter per method is chosen from two values by the NLL of a fifth of the training rows: for every
    split, for images once, by the first of the seeds. Then the method is trained on all training rows. `--out` is
    written whenever a method has finished on a data set; what it holds already is not done again. The samplers' grids
    and the clipping of their gradients were set by hand on validation rows of splits 0 and 1 of concrete and energy.
    """

    name: ClassVar[str] = "comparison"
    root: ClassVar[str] = "uci/, mnist/ and fashion-mnist/"
    by: ClassVar[tuple[str, ...]] = ("data", "method")
    choices: ClassVar[tuple[str, ...]] = ("sets", "methods", "seeds")
    options: ClassVar[Options] = {
        "data": {"choices": ("uci", *IMAGES)},
        "sets": {"help": f"which UCI sets, of {', '.join(UCI_NAMES)}; default: {' '.join(SMALL)}"},
        "methods": {"choices": tuple(METHODS)},
        "seeds": {"flags": ("--seeds", "--splits")},
        "epochs": {},
    }

    sets: tuple[str, ...] = SMALL
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of an image set, splits of a table."""
    hidden: tuple[int, ...] = (50,)
    epochs: int = 60
    batch_size: int = 64
    lr: float = 1e-2
    """Of Adam; the samplers' own stand in their grids."""
    members: int = 5
    samples: int = 100
    clip_norm: float = 5.0
    """Of the samplers' gradients, which grow as the noise in the data is learned to be small."""
    cycles: int = 4
    per_cycle: int = 3
    sparsity: float = 0.5
    """What spike-and-slab pruning must reach."""
    rounds: int = 15
    """Measurements of every time."""

    def load(self, root: Path | None, device: str) -> Cases:
        """The cases of all sets."""
        load = image_cases if self.sets[0] in IMAGES else uci_cases
        return {name: load(name, self.seeds, root, device) for name in self.sets}

    @classmethod
    def begin(cls, chosen: argparse.Namespace) -> tuple[Self, Cases]:
        """Images have settings of their own; the quick form is one split of a set, or a thousand images."""
        images = chosen.data in IMAGES
        sets = (chosen.data,) if images else tuple(chosen.sets or SMALL)
        config = cls(sets=sets, **(IMAGE_SETTINGS if images else {}))
        config = replace(config, **{key: tuple(own) for key in ("methods", "seeds") if (own := getattr(chosen, key))})
        if chosen.quick:
            config = replace(config, sets=sets[:1], seeds=config.seeds[:1], **QUICK)
        if chosen.epochs is not None:
            config = replace(config, epochs=chosen.epochs)
        cases = config.load(chosen.root, chosen.device)
        if chosen.quick and images:
            cases = {name: [smaller(case) for case in own] for name, own in cases.items()}
        return config, cases

    def variants(self) -> list[tuple[str, str]]:
        """Data set and method."""
        return [(name, method) for name in self.sets for method in self.methods]

    def facts(self, data: Cases) -> dict[str, Any]:
        """The grids, where it runs, and times."""
        grids = {name: {METHODS[name].knob: list(METHODS[name].grid)} for name in METHODS}
        device = next(iter(data.values()))[0].train[0].device
        return super().facts(data) | {"grids": grids, "machine": machine(device), "costs": {}}

    def stacks(self, left: Sequence[Member]) -> Iterable[Sequence[Member]]:
        """All splits or seeds of a method, set by set."""
        return sorted(seeds_together(left), key=lambda members: self.sets.index(members[0][0][0]))

    def measured_together(self, members: Sequence[Member], data: Cases, log: Log = SILENT) -> list[Record]:
        """Choose, train and judge, all cases side by side."""
        (name, kind), start = members[0][0], time.perf_counter()
        method, seeds = METHODS[kind], [seed for _, seed in members]
        cases = [case for case in data[name] if case.seed in seeds]
        try:
            judges = cases[:1] if cases[0].train[0] is cases[-1].train[0] else cases
            split = [parts(case) for case in judges]
            pairs = [(case, value, fit) for case, (fit, _) in zip(judges, split, strict=True) for value in method.grid]
            tried = iter(method.train(self, [Job(fit, value, case.seed) for case, value, fit in pairs]))
            found = [
                {value: validation_nll(self, method, next(tried), held) for value in method.grid} for _, held in split
            ]
            chosen = [min(scores, key=lambda value: scores[value]) for scores in found] * (len(cases) // len(judges))
            jobs = [Job(case.train, value, case.seed) for case, value in zip(cases, chosen, strict=True)]
            outcomes = method.train(self, jobs)
        except ImportError as error:
            return [{"skipped": str(error)} for _ in cases]
        seconds = (time.perf_counter() - start) / len(cases)
        runs: list[dict[str, Any]] = []
        for case, value, outcome in zip(cases, chosen, outcomes, strict=True):
            scores = None if outcome is None else judged(self, method, outcome, case)
            runs.append(
                {method.knob: value, "seconds": seconds} | ({"skipped": DIVERGED} if scores is None else scores)
            )
        for one, scores in zip(runs, found, strict=False):
            one["validation_nll"] = {str(value): nll if math.isfinite(nll) else None for value, nll in scores.items()}
        return runs

    def kept(self, one: Mapping[str, Any]) -> bool:
        """What was not installed then may be now."""
        return one.get("skipped") in (None, DIVERGED)

    def beside(self, record: Record, data: Cases) -> dict[str, Any]:
        """The times of a set's methods, once all that are asked for have been run on it."""
        times = dict(record["costs"])
        for name, cases in data.items():
            run = {one["method"] for one in record["runs"] if one["data"] == name}
            fine = {one["method"] for one in record["runs"] if one["data"] == name and "skipped" not in one}
            done = [method for method in METHODS if method in fine]
            if set(self.methods) <= run and set(done) - set(times.get(name, {})):
                times[name] = costs(self, done, cases[0])
        return {"costs": times}

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """See `Experiment`; the costs of all, on the machine of the first."""
        times: dict[str, Any] = {}
        for record in records:
            for name, own in record["costs"].items():
                times[name] = times.get(name, {}) | own
        return super().merged(records) | {"costs": times, "machine": records[0]["machine"]}


main = command(Comparison, table)
"""What `bayeslim reproduce` runs."""
