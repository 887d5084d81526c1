"""The network's answers on labelled data, batch by batch, with all that a report needs of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.data.target import in_own_unit
from bayeslim.likelihoods.base import Likelihood
from bayeslim.predictive.prediction import Prediction
from bayeslim.predictive.sample import predict
from bayeslim.report.content import Draws, Names

__all__ = ["Judged", "Subject", "as_classes", "judge"]

BATCH = 1024
REPETITIONS = 10
COUNTS = (1, 2, 5, 10, 20, 50)


@dataclass(frozen=True, eq=False)
class Judged:
    """Answers for every example; seeds and batches are those of `bl.evaluate`, and so are the scores."""

    mean: Tensor
    """Class probabilities (N, classes) or regression means (N, outputs)."""
    variance: Tensor
    """Total predictive variance, same shape."""
    entropy: Tensor
    """In nats, (N,) for classes."""
    targets: Tensor
    """Labels (N,) or values (N, outputs)."""
    scores: dict[str, float]
    """As of `bl.evaluate`."""
    samples: int
    """Over how many networks the answers are averages."""
    draws: Draws | None
    """Errors by number of draws; None for fewer than 20 samples."""
    lower: Tensor | None = None
    """End of the central 95 % interval; regression only."""
    upper: Tensor | None = None
    """Its other end."""
    position: Tensor | None = None
    """Where the observed value lies in the predictive distribution, `P(Y <= y)`; regression only."""


@dataclass(frozen=True)
class Subject:
    """The network that a report is about, and how it is asked."""

    model: nn.Module
    likelihood: Likelihood
    names: Names
    samples: int
    """Posterior samples of an answer; a plain network has one."""
    seed: int

    def predict(self, x: Tensor, **how: Any) -> Prediction:
        """What the network says of `x`; options replace those of the subject."""
        usual = {"samples": self.samples, "likelihood": self.likelihood, "keep_samples": False, "seed": self.seed}
        return predict(self.model, x, **(usual | how))

    def in_own_unit(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Scores in the unit of the target."""
        return in_own_unit(scores, self.names.target_scale[1])


@torch.no_grad()
def judge(subject: Subject, data: tuple[Tensor, Tensor]) -> Judged:
    """Predict all of `data` and keep what a report needs.

    Args:
        subject: the network.
        data: inputs and targets.

    Example:
        >>> judge(Subject(model, bl.Categorical(), Names(), samples=100, seed=0), (x, y)).scores["accuracy"]
    """
    likelihood = subject.likelihood
    counts: list[int] = []
    drawn = 0
    columns: dict[str, list[Tensor]] = {}
    wrong: list[list[Tensor]] = []
    for index, (x, y) in enumerate(zip(data[0].split(BATCH), data[1].split(BATCH), strict=True)):
        found = subject.predict(x, batch_size=len(x), keep_samples=True, seed=subject.seed + index)
        assert found.samples is not None and found.sample_variances is not None
        y = likelihood.check_targets(y).to(found.mean.device)
        means, variances = found.samples, found.sample_variances
        drawn = len(means)  # one of a plain network, whatever was asked for
        counts = [count for count in COUNTS if count * REPETITIONS <= drawn]
        batch = {
            "mean": found.mean,
            "variance": found.total,
            "entropy": found.entropy,
            "targets": y,
            "density": likelihood.log_density(means, variances, y).double(),
        }
        if not likelihood.bounded:
            batch["lower"], batch["upper"] = found.interval(0.95)
            batch["position"] = torch.special.ndtr((y - means) / variances.sqrt()).mean(0)
        for name, value in batch.items():
            columns.setdefault(name, []).append(value.cpu())
        wrong.append([_losses(means, y, count, likelihood.bounded) for count in counts])
    joined = {name: torch.cat(parts) for name, parts in columns.items()}
    scores = {"nll": -joined.pop("density").mean().item()}
    scores |= likelihood.metrics(joined["mean"], joined["variance"], joined["targets"])
    return Judged(**joined, scores=scores, samples=drawn, draws=_draws(counts, wrong, likelihood.bounded))


def as_classes(probabilities: Tensor) -> Tensor:
    """Probabilities of classes (N, classes); one yes/no output becomes two of them."""
    return torch.cat([1 - probabilities, probabilities], 1) if probabilities.shape[1] == 1 else probabilities


def _losses(means: Tensor, y: Tensor, count: int, bounded: bool) -> Tensor:
    """Wrong or not, or squared error: (repetitions, N), each from `count` draws of its own."""
    averaged = means[: count * REPETITIONS].unflatten(0, (REPETITIONS, count)).mean(1)
    if not bounded:
        return (averaged - y).double().square().flatten(2).mean(2)
    if y.ndim == 1:
        return (averaged.argmax(-1) != y).double()
    return ((averaged > 0.5) != (y > 0.5)).double().flatten(2).mean(2)


def _draws(counts: list[int], batches: list[list[Tensor]], bounded: bool) -> Draws | None:
    """Errors by number of draws, over all batches."""
    if len(counts) < 2:
        return None
    errors = [torch.cat(losses, 1).double().mean(1) for losses in zip(*batches, strict=True)]
    if not bounded:
        errors = [error.sqrt() for error in errors]
    return Draws(counts, [error.tolist() for error in errors], "error" if bounded else "rmse")
