"""Signal-to-noise ratio of the gradients of a posterior's scales."""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

import torch
from torch import Tensor, nn

from bayeslim.pruning.prune import bayes_layers

__all__ = ["GradientSNR"]

ROUNDING = 1e-6
"""Relative changes below this are rounding, not noise."""


class GradientSNR:
    r"""Mean signal-to-noise ratio of the scale gradients over the last batches, by layer.

    For each scalar scale parameter with gradients `g` over the window, either
    `E[g]^2 / Var[g]` ("ratio") or `E[g^2] / Var[g]` ("second_moment"), which is one more and is what the
    footnote of the k-tied paper prints; averaged over the parameters of a layer.

    Args:
        model: network with Bayesian layers.
        window: number of batches (10 in the paper).

    Example:
        >>> snr = GradientSNR(model)
        >>> for x, y in batches:
        ...     loss(x, y).backward(); snr.update(); optimizer.step(); optimizer.zero_grad()
        >>> snr.values("second_moment")
    """

    def __init__(self, model: nn.Module, window: int = 10) -> None:
        if window < 2:
            raise ValueError(f"`window` must be at least 2, got {window}: pass e.g. 10")
        self.layers = {
            name: [getattr(layer.weight, part) for part in layer.weight.scale_parameters]
            for name, layer in bayes_layers(model, "analyse").items()
        }
        if not self.layers:
            raise ValueError("`model` has no Bayesian layers: there are no scale gradients")
        self.gradients: deque[dict[str, Tensor]] = deque(maxlen=window)

    def update(self) -> None:
        """Remember the present gradients; call between `backward` and `step`."""
        present: dict[str, Tensor] = {}
        for name, parameters in self.layers.items():
            gradients = [p.grad.detach().flatten() for p in parameters if p.grad is not None]
            if len(gradients) != len(parameters):
                raise RuntimeError(f"the scales of layer {name!r} have no gradients: call backward() before")
            present[name] = torch.cat(gradients).clone()
        self.gradients.append(present)

    def values(
        self,
        kind: Literal["ratio", "second_moment"] = "ratio",
        summary: Literal["mean", "median"] = "mean",
    ) -> dict[str, float]:
        """The ratio of every layer over the window.

        Parameters whose gradient does not move, such as those behind a dead unit, where only the KL acts, have no
        noise to speak of and are left out; a layer of nothing else gives NaN.

        Args:
            kind: which ratio, see the class.
            summary: mean over the parameters of a layer, as in the paper, or the median, which a few nearly
                noiseless parameters do not dominate.
        """
        if kind not in ("ratio", "second_moment"):
            raise ValueError(f"`kind` must be 'ratio' or 'second_moment', got {kind!r}")
        if summary not in ("mean", "median"):
            raise ValueError(f"`summary` must be 'mean' or 'median', got {summary!r}")
        if len(self.gradients) < 2:
            raise RuntimeError("fewer than two batches were seen: call update() after each backward()")
        result: dict[str, float] = {}
        for name in self.layers:
            stack = torch.stack([gradients[name] for gradients in self.gradients]).double()
            mean, variance = stack.mean(0), stack.var(0, unbiased=False)
            signal = mean.square() if kind == "ratio" else stack.square().mean(0)
            moving = variance > (ROUNDING * mean).square()
            ratios = signal[moving] / variance[moving]
            result[name] = (ratios.mean() if summary == "mean" else ratios.median()).item() if len(ratios) else math.nan
        return result
