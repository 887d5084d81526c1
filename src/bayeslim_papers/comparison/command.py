"""Which method to choose: all of them, and the usual baselines, on the same data, network and epochs.

    bayeslim reproduce comparison --data uci --root DATA --splits 0 1 2 3 4 --out results/comparison_uci.json
    bayeslim reproduce comparison --data mnist --root DATA --device cuda --out results/comparison_mnist.json

UCI regressions (50 hidden ReLU units, standard splits, one learned noise), and MNIST or Fashion-MNIST (LeNet-300-100,
the other one as outliers, told apart by predictive entropy):

- map: Adam, Gaussian prior; mc-dropout: dropout after every hidden layer, 100 samples; ensemble: five of map; laplace:
  Kronecker-factored, around map, 100 samples;
- graves, bbb, molchanov, kingma, ard, gamma, k-tied, vdp: `bl.METHODS`, 100 samples; vdp predicts in one pass;
- cvadam, sghmc: twelve snapshots of four cycles; dfp: cvadam with spike-and-slab pruning on the way, three snapshots.

One hyper-parameter per method is chosen from two values by the NLL of a fifth of the training rows: for every split,
for images once, by the first of the seeds. Then the method is trained on all training rows. `--out` is written whenever
a method has finished on a data set; what it holds already is not done again. The samplers' grids and the clipping of
their gradients were set by hand on validation rows of splits 0 and 1 of concrete and energy.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from bayeslim.data.tabular import UCI_NAMES
from bayeslim.machine import machine
from bayeslim_papers.arguments import add_seeds, common_parser
from bayeslim_papers.comparison.data import IMAGES, SMALL, Case, image_cases, parts, uci_cases
from bayeslim_papers.comparison.judge import costs, judged, validation_nll
from bayeslim_papers.comparison.methods import METHODS
from bayeslim_papers.comparison.table import table
from bayeslim_papers.comparison.training import Config, Job
from bayeslim_papers.record import check_joinable, join_files, united, write_record

__all__ = ["Config", "main", "run", "table"]

IMAGE_SETTINGS: dict[str, Any] = {
    "hidden": (300, 100),
    "epochs": 50,
    "batch_size": 128,
    "lr": 1e-3,
    "sparsity": 0.9,
}
QUICK: dict[str, Any] = {"epochs": 8, "members": 2, "samples": 10, "per_cycle": 1, "rounds": 3}
DIVERGED = "diverged"
CHOICES = ("sets", "methods", "seeds")
"""Settings in which the runs of one record may differ."""


def run(
    config: Config, cases: dict[str, list[Case]], out: Path | None = None, console: Console | None = None
) -> dict[str, Any]:
    """All methods on all data sets.

    Args:
        config: settings.
        cases: for every data set its splits or seeds.
        out: a file to keep the record in; what it holds already is not done again.
        console: where to say what is finished.

    Returns:
        A JSON-able record: config, machine, costs by data set and method, and one run per data set, method and split.

    Raises:
        ValueError: if `out` holds runs of other settings.

    Example:
        >>> run(config, {"concrete": uci_cases("concrete", (0, 1), root)}, Path("comparison.json"))["runs"][0]["rmse"]
    """
    record = _begun(config, next(iter(cases.values()))[0].train[0].device, out)
    for name, own in cases.items():
        for method in config.methods:
            finished = {run["seed"] for run in record["runs"] if _is(run, name, method)}
            missing = [case for case in own if case.seed not in finished]
            if missing:
                new = _runs(config, method, missing)
                record["runs"] += [{"data": name, "method": method} | one for one in new]
                write_record(out, record)
                if console is not None:
                    console.print(f"{name} {method}: {new[0]}", markup=False, soft_wrap=True)
        done = [m for m in METHODS if any(_is(run, name, m) and "skipped" not in run for run in record["runs"])]
        if set(done) - set(record["costs"].get(name, {})):
            record["costs"][name] = costs(config, done, own[0])
        write_record(out, record)
    return record


def _is(run: dict[str, Any], data: str, method: str) -> bool:
    return run["data"] == data and run["method"] == method


def _begun(config: Config, device: torch.device, out: Path | None) -> dict[str, Any]:
    """The record in `out`, without what was not installed then; or an empty one."""
    settings = json.loads(json.dumps(dataclasses.asdict(config)))
    grids = {name: {METHODS[name].knob: list(METHODS[name].grid)} for name in METHODS}
    if out is None or not out.exists():
        return {"config": settings, "grids": grids, "machine": machine(device), "costs": {}, "runs": []}
    record = json.loads(out.read_text())
    check_joinable(record["config"], settings, CHOICES)
    record["config"] |= united([record["config"], settings], CHOICES)
    record["runs"] = [run for run in record["runs"] if run.get("skipped") in (None, DIVERGED)]
    return record


def _runs(config: Config, name: str, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Choose, train and judge, all cases side by side."""
    method = METHODS[name]
    start = time.perf_counter()
    try:
        judges = cases[:1] if cases[0].train[0] is cases[-1].train[0] else cases
        split = [parts(case) for case in judges]
        jobs = [
            Job(fit, value, case.seed) for case, (fit, _) in zip(judges, split, strict=True) for value in method.grid
        ]
        tried = iter(method.train(config, jobs))
        found = [
            {value: validation_nll(config, method, next(tried), held) for value in method.grid} for _, held in split
        ]
        chosen = [min(scores, key=lambda value: scores[value]) for scores in found] * (len(cases) // len(judges))
        outcomes = method.train(config, [Job(c.train, value, c.seed) for c, value in zip(cases, chosen, strict=True)])
    except ImportError as error:
        return [{"seed": case.seed, "skipped": str(error)} for case in cases]
    seconds = (time.perf_counter() - start) / len(cases)
    runs: list[dict[str, Any]] = []
    for case, value, outcome in zip(cases, chosen, outcomes, strict=True):
        scores = None if outcome is None else judged(config, method, outcome, case)
        facts = {"seed": case.seed, method.knob: value, "seconds": seconds}
        runs.append(facts | ({"skipped": DIVERGED} if scores is None else scores))
    for one, scores in zip(runs, found, strict=False):
        one["validation_nll"] = {str(value): nll if math.isfinite(nll) else None for value, nll in scores.items()}
    return runs


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison from the command line."""
    parser = common_parser(
        __doc__,
        root="uci/, mnist/ and fashion-mnist/",
        quick="one split of one set, or a thousand images; few epochs",
        out="JSON file to write, and to continue",
    )
    parser.add_argument("--data", choices=("uci", *IMAGES), default="uci")
    parser.add_argument("--sets", nargs="+", choices=UCI_NAMES, default=list(SMALL), help="which UCI sets")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add_seeds(parser, "--splits", what="seeds or splits, by default 3,")
    parser.add_argument("--epochs", type=int, default=None)
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = join_files(chosen.merge, merged, chosen.out)
    else:
        images = chosen.data in IMAGES
        sets = (chosen.data,) if images else tuple(chosen.sets)
        config = Config(
            sets, tuple(chosen.methods), tuple(chosen.seeds or (0, 1, 2)), **(IMAGE_SETTINGS if images else {})
        )
        if chosen.quick:
            config = dataclasses.replace(config, sets=sets[:1], seeds=config.seeds[:1], **QUICK)
        if chosen.epochs is not None:
            config = dataclasses.replace(config, epochs=chosen.epochs)
        load = image_cases if images else uci_cases
        cases = {name: load(name, config.seeds, chosen.root, chosen.device) for name in config.sets}
        if chosen.quick and images:
            cases = {name: [smaller(case) for case in own] for name, own in cases.items()}
        record = run(config, cases, chosen.out, console)
    console.print(table(record), markup=False, soft_wrap=True)


def smaller(case: Case, train: int = 1000, test: int = 200) -> Case:
    """The first rows of a case."""
    outliers = None if case.outliers is None else case.outliers[:test]
    cut = ((data[0][:count], data[1][:count]) for data, count in ((case.train, train), (case.test, test)))
    return case._replace(outliers=outliers, **dict(zip(("train", "test"), cut, strict=True)))


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The runs and costs of all records; other settings are those of the first."""
    config = records[0]["config"] | united([record["config"] for record in records], CHOICES)
    joined = records[0] | {"config": config, "costs": {}, "runs": []}
    for record in records:
        joined["runs"] += record["runs"]
        for name, own in record["costs"].items():
            joined["costs"][name] = joined["costs"].get(name, {}) | own
    return joined


if __name__ == "__main__":
    main()
