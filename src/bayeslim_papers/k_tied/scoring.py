"""Scores of a Bayesian classifier from samples of its weights, before and after its scales are cut to a low rank."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import truncate_scales_
from bayeslim.runtime.modes import evaluation_mode
from bayeslim.runtime.seeds import seeded

__all__ = ["CALIBRATION", "METRICS", "Data", "Metrics", "score", "truncated"]

Data = tuple[Tensor, Tensor]
"""Inputs and labels."""
Metrics = dict[str, Callable[[Tensor, Tensor], float]]
"""Name -> function of averaged probabilities (examples, classes) and labels."""
METRICS: Metrics = {
    "nll": bl.metrics.negative_log_likelihood,
    "accuracy": lambda probabilities, y: 100 * bl.metrics.accuracy(probabilities, y),
}
CALIBRATION: Metrics = {
    "brier": lambda probabilities, y: bl.metrics.brier(probabilities, y) - 1,
    "ece": bl.metrics.expected_calibration_error,
}
"""What table 3 shows besides; its Brier score is that of TensorFlow Probability, which has no constant 1."""
ROWS = 10_000
"""Examples in one pass, which share a draw of the weights."""


@torch.no_grad()
def score(
    model: nn.Module, data: Data, num_data: int, samples: int, metrics: Metrics | None = None
) -> dict[str, float]:
    """-ELBO per datum, and metrics of the averaged prediction, from `S` draws `W_s` of the weights.

    `nelbo = -(1/S) sum_s mean_i ln p(y_i | x_i, W_s) + KL / num_data`, `num_data` counts the training examples; the
    prediction for example `i` is `(1/S) sum_s p(y | x_i, W_s)`. The network gives logits (examples, classes), or one
    logit (examples, 1) for two classes.
    """
    x, y = data
    averages: list[Tensor] = []
    total = 0.0
    with seeded(0), evaluation_mode(model), bl.using(model, bl.weight_sample):
        for inputs, labels in zip(x.split(ROWS), y.split(ROWS), strict=True):
            average = torch.zeros((), dtype=torch.float64, device=x.device)
            expected = torch.zeros((), dtype=torch.float64, device=x.device)
            for _ in range(samples):
                log_p = log_probabilities(model(inputs))
                average = average + log_p.exp() / samples
                expected -= log_p.gather(1, labels[:, None]).sum() / samples
            averages.append(average)
            total += expected.item()
    scores = {"nelbo": total / len(y) + bl.kl(model).item() / num_data}
    return scores | {name: metric(torch.cat(averages), y) for name, metric in (metrics or METRICS).items()}


def truncated(
    model: nn.Module, ranks: Sequence[int], data: Data, num_data: int, samples: int, metrics: Metrics | None = None
) -> dict[str, dict[str, float]]:
    """The scores of a mean-field network whose standard deviations are cut to each rank, layer by layer."""
    table: dict[str, dict[str, float]] = {}
    for rank in ranks:
        cut = copy.deepcopy(model)
        truncate_scales_(cut, rank)
        table[f"rank {rank}"] = score(cut, data, num_data, samples, metrics)
    return table


def log_probabilities(logits: Tensor) -> Tensor:
    """Log probabilities (examples, classes) in float64; one logit is that of the second of two classes."""
    if logits.shape[1] == 1:
        return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], 1).double()
    return logits.log_softmax(-1).double()
