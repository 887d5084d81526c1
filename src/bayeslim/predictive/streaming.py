"""Moments over posterior samples, accumulated chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from bayeslim.likelihoods.base import Conditional, Likelihood
from bayeslim.predictive.prediction import Prediction

__all__ = ["StreamingMoments"]


class StreamingMoments:
    r"""Mean and variance of conditionals over samples that never stand in memory together.

    Chunks are merged by the pairwise update of Chan et al. 1983: with counts `n`, `m`, means `a`, `b` and
    `delta = b - a`, the sum of squared deviations grows by that of the chunk plus
    `delta^2 n m / (n + m)`.

    Args:
        likelihood: turns outputs into conditionals.
        room: keep every sample as well while they are at most this many numbers; drop all beyond it.
        own: the likelihood of a sample by its number, where they differ.
    """

    def __init__(self, likelihood: Likelihood, room: float, own: Callable[[int], Likelihood] | None = None) -> None:
        self.likelihood = likelihood
        self.own = own
        self.room = room
        self.count = 0
        self.mean = self.squares = self.variance = self.entropy = torch.zeros(())
        self.kept: list[Conditional] = []

    def add(self, outputs: Tensor) -> None:
        """Take in a chunk of outputs, samples first."""
        self.likelihood.check_outputs(outputs.shape[1:])
        conditional = self._conditional(outputs.float() if _is_half(outputs) else outputs)
        count = len(outputs)
        total = self.count + count
        mean = conditional.mean.mean(0)
        delta = mean - self.mean
        chunk_squares = (conditional.mean - mean).square().sum(0)
        self.squares = self.squares + chunk_squares + delta.square() * (self.count * count / total)
        self.mean = self.mean + delta * (count / total)
        self.variance = self.variance + (conditional.variance.mean(0) - self.variance) * (count / total)
        self.entropy = self.entropy + (conditional.entropy.mean(0) - self.entropy) * (count / total)
        self.count = total
        self.room -= conditional.mean.numel() + conditional.variance.numel()
        if self.room >= 0:
            self.kept.append(conditional)
        else:
            self.kept.clear()

    def _conditional(self, outputs: Tensor) -> Conditional:
        if self.own is None:
            return self.likelihood.conditional(outputs)
        each = [self.own(number).conditional(output) for number, output in enumerate(outputs, self.count)]
        return Conditional(*map(torch.stack, zip(*each, strict=True)))

    def prediction(self) -> Prediction:
        """The prediction so far. Variances divide by the number of samples, so that they add up."""
        epistemic = self.squares / self.count
        entropy = self.likelihood.predictive_entropy(self.mean, epistemic + self.variance)
        return Prediction(
            mean=self.mean,
            epistemic=epistemic,
            aleatoric=self.variance,
            entropy=entropy,
            mutual_information=(entropy - self.entropy).clamp_min(0.0),
            likelihood=self.likelihood,
            samples=torch.cat([part.mean for part in self.kept]) if self.kept else None,
            sample_variances=torch.cat([part.variance for part in self.kept]) if self.kept else None,
        )


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16)
