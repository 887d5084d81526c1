"""Priors and posteriors centred on a trained network."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from bayeslim.checks.numbers import check_number
from bayeslim.posteriors.base import full
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.normal import Normal

__all__ = ["moped"]


def moped(delta: float = 0.1, prior_std: float | None = None) -> dict[str, Any]:
    """Options for `bayesianize_` that centre prior and posterior on a trained network (MOPED).

    Posterior `N(w, (delta |w|)^2)`, prior `N(w, prior_std^2)`, `w` the trained weight (Krishnan et al. 2020). The
    prior's means are buffers, so they are saved with the network and do not follow the posterior.

    Args:
        delta: initial standard deviation as a part of the weight's magnitude.
        prior_std: standard deviation of the prior; None takes 1.

    Example:
        >>> bayesianize_(trained, **moped(delta=0.1))
    """
    check_number("delta", delta, "(0, inf)", "pass e.g. 0.1")
    return {
        "posterior": functools.partial(_proportional, delta=delta),
        "prior": functools.partial(_centred, std=1.0 if prior_std is None else prior_std),
    }


def _proportional(init: Tensor, delta: float) -> MeanField:
    """A scale of `delta |w|`, with a floor for weights that are exactly zero."""
    magnitude = full(init.detach()).abs()
    floor = 1e-3 * magnitude.mean() if bool(magnitude.any()) else torch.tensor(1e-3)
    return MeanField(init, scale=(delta * torch.maximum(magnitude, floor.to(magnitude))))


def _centred(init: Tensor, std: float) -> Normal:
    return Normal(mean=init.detach().clone(), std=std)
