"""Predictions over all of a small input space: a line, or a plane."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.estimators import weight_sample
from bayeslim.report.content import Band, Boundary
from bayeslim.report.judging import Subject, as_classes

__all__ = ["band_of", "boundary_of"]

STEPS = 160
"""Points of a line."""
SIDE = 72
"""Points of each side of a plane."""
MARGIN = 0.35
"""How far beyond the training data to look, in parts of their range."""
MOST_POINTS = 400
"""Points of a scatter plot."""


def band_of(subject: Subject, train: tuple[Tensor, Tensor]) -> Band:
    """Mean and 95 % intervals of a regression on one input.

    Example:
        >>> band_of(Subject(model, bl.likelihoods.Gaussian(), Names(), samples=100, seed=0), (x, y)).upper
    """
    names = subject.names
    x, y = train[0].cpu(), train[1].cpu().reshape(len(train[0]), -1)[:, 0]
    line = _range(x[:, 0], STEPS)
    found = subject.predict(line[:, None], estimator=weight_sample, keep_samples=True)
    assert found.samples is not None
    lower, upper = found.interval(0.95)
    model_lower, model_upper = torch.quantile(
        found.samples.double(), found.samples.new_tensor([0.025, 0.975]).double(), 0
    )
    mean, std = names.target_scale

    def shown(column: Tensor) -> list[float]:
        return (column[:, 0].double().cpu() * std + mean).tolist()

    seen = zip(names.unscaled(0, x[:MOST_POINTS, 0]).tolist(), (y[:MOST_POINTS] * std + mean).tolist(), strict=True)
    return Band(
        x=names.unscaled(0, line).tolist(),
        mean=shown(found.mean),
        lower=shown(lower),
        upper=shown(upper),
        model_lower=shown(model_lower),
        model_upper=shown(model_upper),
        points=list(seen),
    )


def boundary_of(subject: Subject, train: tuple[Tensor, Tensor]) -> Boundary:
    """Class probabilities over the plane of two inputs.

    Example:
        >>> boundary_of(Subject(model, bl.Categorical(), Names(), samples=100, seed=0), (x, y)).averaged.shape
        (72, 72, 2)
    """
    names = subject.names
    x, y = train[0][:MOST_POINTS].cpu(), train[1][:MOST_POINTS].cpu().long().flatten()
    across, upwards = _range(train[0][:, 0].cpu(), SIDE), _range(train[0][:, 1].cpu(), SIDE)
    rows, columns = torch.meshgrid(upwards, across, indexing="ij")
    plane = torch.stack([columns.flatten(), rows.flatten()], 1)

    def probabilities(**how: Any) -> NDArray[np.float64]:
        found = subject.predict(plane, batch_size=len(plane), **how)
        return as_classes(found.mean).double().cpu().numpy().reshape(SIDE, SIDE, -1)

    horizontal, vertical = names.unscaled(0, across), names.unscaled(1, upwards)
    extent = (horizontal[0].item(), horizontal[-1].item(), vertical[0].item(), vertical[-1].item())
    seen = zip(names.unscaled(0, x[:, 0]).tolist(), names.unscaled(1, x[:, 1]).tolist(), y.tolist(), strict=True)
    single = probabilities(method="mean")
    averaged = probabilities(estimator=weight_sample)  # whole networks: smooth over the plane
    return Boundary(extent, single, averaged, list(seen))


def _range(values: Tensor, steps: int) -> Tensor:
    """Equal steps over the range of values and a margin beyond."""
    low, high = float(values.min()), float(values.max())
    beyond = MARGIN * max(high - low, 1e-6)
    return torch.linspace(low - beyond, high + beyond, steps, dtype=values.dtype)
