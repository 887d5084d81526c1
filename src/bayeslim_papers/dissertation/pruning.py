"""How the dissertation judges a network: many sampled networks, before and after pruning."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from torch import Tensor, nn

import bayeslim as bl
from bayeslim.pruning import Criterion, named_sparsity, random_like

__all__ = ["accuracies", "error_sweep", "errors"]

ROWS_AT_ONCE = 5000
"""Examples that share the weights of a pass."""


def errors(model: nn.Module, data: tuple[Tensor, Tensor], counts: Sequence[int], seed: int) -> dict[int, float]:
    """Error in percent of the averaged prediction of `T` sampled networks, for every `T` in `counts`.

    `p_T(y | x) = (1/T) sum_{t <= T} softmax(f(x; W_t))`, `W_t ~ q`; the first `T` of the same draws serve every `T`.
    """
    wrong = dict.fromkeys(counts, 0)
    options: dict[str, Any] = {"samples": max(counts), "estimator": bl.weight_sample, "keep_samples": True}
    for x, y in zip(*(part.split(ROWS_AT_ONCE) for part in data), strict=True):
        drawn = bl.predict(model, x, likelihood=bl.Categorical(), batch_size=len(x), seed=seed, **options).samples
        assert drawn is not None
        for count in counts:
            wrong[count] += int((drawn[:count].mean(0).argmax(-1) != y).sum())
    return {count: 100 * number / len(data[1]) for count, number in wrong.items()}


def error_sweep(
    model: nn.Module, data: tuple[Tensor, Tensor], counts: Sequence[int], repetitions: int
) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of the error over repeated predictions, for every number of networks."""
    found = [errors(model, data, counts, seed) for seed in range(repetitions)]
    columns = {count: [one[count] for one in found] for count in counts}
    return {str(count): {"mean": mean(column), "std": stdev(column)} for count, column in columns.items()}


def accuracies(
    model: nn.Module, data: tuple[Tensor, Tensor], criterion: Criterion, samples: int, seed: int
) -> dict[str, Any]:
    """Sparsity of every layer, and accuracy in percent as it is, pruned, and with as many weights pruned at random.

    The network is left as it is; `criterion` says what counts as dead, at its published threshold.
    """
    pruned = copy.deepcopy(model)
    sparsity = bl.prune_(pruned, criterion, allow_empty=True)
    networks = {"none": model, "principled": pruned, "random": random_like(pruned, seed)}
    return {
        "sparsity": list(sparsity.values()),
        "sparsity_log_alpha": list(named_sparsity(model).values()),
        "accuracy": {name: 100 - errors(one, data, (samples,), seed)[samples] for name, one in networks.items()},
    }
