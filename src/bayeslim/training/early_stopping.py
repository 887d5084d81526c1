"""The best epoch by validation score: when to stop, and how to go back to it."""

from __future__ import annotations

import math

from torch import nn

from bayeslim.likelihoods.base import Likelihood
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.saving import prefixed, unprefixed
from bayeslim.training.checkpoint import RunState

__all__ = ["note_best", "patience_over", "restore_best_"]


def note_best(state: RunState, model: nn.Module, likelihood: Likelihood, score: float) -> None:
    """Keep a copy of network and likelihood if the score of the last epoch is the best so far; NaN is the worst."""
    score = math.inf if math.isnan(score) else score
    if state.best_score is None or score < state.best_score:
        state.best_score, state.best_epoch = score, state.epoch
        both = prefixed("model", model.state_dict()) | prefixed("likelihood", likelihood.state_dict())
        state.best = {name: value.detach().clone() for name, value in both.items()}


def patience_over(state: RunState, patience: int | None) -> bool:
    """Whether the best epoch is that many epochs ago."""
    return patience is not None and state.best_epoch > 0 and state.epoch - state.best_epoch >= patience


def restore_best_(state: RunState, model: nn.Module, likelihood: Likelihood, pruner: SpikeAndSlab | None) -> None:
    """Go back to the best epoch, and let the masks be those of the network then."""
    model.load_state_dict(unprefixed("model", state.best))
    likelihood.load_state_dict(unprefixed("likelihood", state.best))
    if pruner is not None:
        pruner.take_masks_()
