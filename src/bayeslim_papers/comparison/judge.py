"""What the comparison measures: scores of an outcome, and the time that training and predicting take."""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bayeslim as bl
from bayeslim.export import save_slim
from bayeslim.predictive import Snapshots
from bayeslim.runtime.timing import interleaved
from bayeslim_papers.comparison.data import Case, Data, likelihood_for
from bayeslim_papers.comparison.methods import METHODS, Method, Outcome
from bayeslim_papers.comparison.training import Job

if TYPE_CHECKING:
    from bayeslim_papers.comparison.command import Comparison

__all__ = ["costs", "judged", "validation_nll"]


def validation_nll(config: Comparison, method: Method, outcome: Outcome | None, held: Data) -> float:
    """The score to choose by; infinite if training diverged."""
    scores = None if outcome is None else _scores(config, method, outcome, held)
    return math.inf if scores is None or math.isnan(scores["nll"]) else scores["nll"]


def judged(config: Comparison, method: Method, outcome: Outcome, case: Case) -> dict[str, Any] | None:
    """All columns of one run but the times; None if its predictions are not finite.

    Errors and log densities are in the original unit of the targets. `bytes` is a float32 file of all that the method
    predicts by, `slim_bytes` the 16-bit slim file of the single network, `sparsity` its part of zero weights.
    """
    scores = _scores(config, method, outcome, case.test)
    if scores is None:
        return None
    x, y = case.test
    main = "rmse" if y.is_floating_point() else "accuracy"
    single = bl.evaluate(outcome.single, case.test, samples=0)
    scores["single"] = single[main] * case.unit
    if main == "rmse":
        scores |= {"rmse": scores["rmse"] * case.unit, "nll": scores["nll"] + math.log(case.unit)}
    if case.outliers is not None:
        options: dict[str, Any] = {"samples": config.samples, "method": method.predict, "seed": 0}
        usual, strange = (bl.predict(outcome.whole, part, **options).entropy for part in (x, case.outliers))
        scores["ood_auroc"] = bl.metrics.auroc(usual, strange)
    whole = outcome.whole
    copies, network = (len(whole), whole.model) if isinstance(whole, Snapshots) else (1, whole)
    plain, network = (copy.deepcopy(part).cpu() for part in (outcome.single, network))
    cost = bl.footprint(plain)
    with tempfile.TemporaryDirectory() as folder:
        slim = save_slim(plain, Path(folder) / "net.slim.safetensors")
    return scores | {
        "sparsity": 1 - cost.nonzero / cost.weights,
        "bytes": copies * bl.footprint(network).bayesian_bytes,
        "slim_bytes": slim,
    }


def _scores(config: Comparison, method: Method, outcome: Outcome, data: Data) -> dict[str, Any] | None:
    first = bl.predict(outcome.whole, data[0][:1000], samples=config.samples, method=method.predict, seed=0)
    if not bool(first.total.isfinite().all()):
        return None
    return dict(bl.evaluate(outcome.whole, data, samples=config.samples, method=method.predict))


def costs(config: Comparison, names: Sequence[str], case: Case) -> dict[str, dict[str, float]]:
    """Times of training and of predicting at most 1000 test rows, against MAP; all take turns.

    Training is the time of one step on one batch, times the networks that have to be trained: the epochs are the same
    for all. Laplace's own pass over the data is left out.
    """
    names = list(dict.fromkeys(["map", *names]))
    job = {name: Job(case.train, METHODS[name].grid[0], case.seed) for name in names}
    device = case.train[0].device
    steps = {name: METHODS[name].step(config, job[name]) for name in names}
    predictions = {name: _prediction(config, name, job[name], case) for name in names}
    training, predicting = (interleaved(calls, rounds=config.rounds, device=device) for calls in (steps, predictions))
    found: dict[str, dict[str, float]] = {}
    for name in names:
        count = METHODS[name].networks(config)
        train = {key: value * count for key, value in asdict(training[name]).items()}
        found[name] = {f"train_{key}": value for key, value in train.items()}
        found[name] |= {f"predict_{key}": value for key, value in asdict(predicting[name]).items()}
    return found


def _prediction(config: Comparison, name: str, job: Job, case: Case) -> Callable[[], object]:
    method, x = METHODS[name], case.test[0][:1000]
    model, likelihood = method.untrained(config, job), likelihood_for(case.train).to(x.device)
    options: dict[str, Any] = {"samples": config.samples, "method": method.predict, "likelihood": likelihood}
    return lambda: bl.predict(model, x, **options).mean.sum().item()
