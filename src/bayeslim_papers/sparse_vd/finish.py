"""What the Sparse VD experiment does with trained networks: prune, tune, measure."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.schedules import constant_then_linear
from bayeslim.training import fit_many
from bayeslim_papers.sparse_vd.recipes import FINISHES, Finish
from bayeslim_papers.sparse_vd.views import Data, varied

if TYPE_CHECKING:
    from bayeslim_papers.sparse_vd.command import SparseVd

__all__ = ["SoftLabels", "finished", "judged", "soft_targets", "tune_"]


def finished(
    config: SparseVd, models: Sequence[nn.Module], seeds: Sequence[int], images: tuple[Data, Data]
) -> list[dict[str, Any]]:
    """The scores of trained networks, as they are and after every finish, each of which works on copies."""
    train, test = images
    found: list[dict[str, Any]] = [{"trained": _attempted(_errors, model, test, config.samples)} for model in models]
    soft_of = functools.cache(lambda place: soft_targets(models[place], train, config.samples))
    for name in config.finishes:
        finish = FINISHES[name]
        copies = [copy.deepcopy(model) for model in models]
        fates: list[dict[str, Any]] = [
            _attempted(bl.prune_, model, finish.criterion, **finish.extent) for model in copies
        ]
        alive = [place for place, fate in enumerate(fates) if "failed" not in fate]
        if finish.tune and alive:
            soft = [soft_of(place) for place in alive] if finish.distil else None
            tuned = [copies[place] for place in alive]
            tune_(config, finish, tuned, [seeds[place] for place in alive], train, soft)
        for place, own in enumerate(found):
            own[name] = fates[place]
            if place in alive:
                own[name] = {"sparsity": fates[place]} | judged(config, copies[place], test)
    return found


def judged(config: SparseVd, model: nn.Module, test: Data) -> dict[str, Any]:
    """Errors of a pruned network, its compression as the papers count it, and what compaction makes of it."""
    example = test[0][:1].cpu()
    plain = bl.collapse_(copy.deepcopy(model).cpu()).eval()
    before, after = (bl.footprint(network, example, repeats=0) for network in (plain, bl.compact(plain, example)))
    return {
        **_errors(model, test, config.samples),
        "compression": before.weights / before.nonzero,
        "dense": asdict(before),
        "compacted": asdict(after),
    }


def _errors(model: nn.Module, test: Data, samples: int) -> dict[str, float]:
    """Test errors in % of the mean network and of the average over posterior samples, with their nll."""
    options: dict[str, Any] = {"likelihood": bl.Categorical(), "batch_size": 2000}
    mean, sampled = (bl.evaluate(model, test, samples=count, **options) for count in (0, samples))
    return {
        "error": 100 * (1 - mean["accuracy"]),
        "nll": mean["nll"],
        "sampled_error": 100 * (1 - sampled["accuracy"]),
        "sampled_nll": sampled["nll"],
    }


def _attempted(step: Callable[..., dict[str, Any]], *args: Any, **options: Any) -> dict[str, Any]:
    """What a step gives, or why it could not: one network that diverged or lost a layer must not end the others."""
    try:
        return step(*args, **options)
    except ValueError as error:
        return {"failed": str(error)}


class SoftLabels(bl.Categorical):
    """Cross-entropy against probabilities: `-sum_c y_c ln softmax(f)_c` for targets `y` of shape (batch, classes).

    Example:
        >>> SoftLabels().nll(torch.zeros(1, 4), torch.full((1, 4), 0.25)).item()  # ln 4
        1.3862...
    """

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Probabilities, one per class."""
        if y.ndim != 2 or not y.is_floating_point():
            raise ValueError(f"`y` must be probabilities (N, classes), got {y.dtype} {tuple(y.shape)}")
        return y


def soft_targets(model: nn.Module, data: Data, samples: int) -> Tensor:
    """(N, classes): half the label, half the posterior's averaged prediction."""
    x, y = data
    mean = bl.predict(model, x, samples=samples, likelihood=bl.Categorical(), keep_samples=False, seed=0).mean
    return 0.5 * mean + 0.5 * F.one_hot(y, mean.shape[1]).to(mean)


def tune_(
    config: SparseVd,
    finish: Finish,
    models: Sequence[nn.Module],
    seeds: Sequence[int],
    data: Data,
    soft: Sequence[Tensor] | None = None,
) -> None:
    """Train the weights that pruning has left, all at once on the labels, or each network on its own soft targets.

    The learning rate falls to 0 over the second half; with a weight of the KL of 0 the means are trained alone, without
    noise. Shifted and turned copies count as images.
    """
    x, labels = data
    seen, copies = varied(x, shift=finish.shift, turn=finish.turn)
    epochs = math.ceil(finish.tune * config.tune_epochs / copies)
    stacks = [(models, seeds, labels, bl.Categorical())]
    if soft is not None:
        stacks = [([own], [seed], y, SoftLabels()) for own, seed, y in zip(models, seeds, soft, strict=True)]
    for stack, own_seeds, targets, likelihood in stacks:
        fit_many(
            stack,
            (seen, targets.repeat(copies, *[1] * (targets.ndim - 1))),
            likelihood=likelihood,
            epochs=epochs,
            pretrain_epochs=0 if finish.beta else epochs,
            batch_size=config.batch_size,
            lr=finish.lr,
            lr_schedule=constant_then_linear(0.5),
            kl_weight=finish.beta,
            seeds=own_seeds,
            compile=config.compile,
        )
