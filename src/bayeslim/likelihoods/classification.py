"""Likelihoods of classes and of yes/no targets."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim import metrics
from bayeslim.likelihoods.base import Conditional, Likelihood, aligned, targets_like_output

__all__ = ["Bernoulli", "Categorical"]


class Categorical(Likelihood):
    """Classes: `p(y = c | f) = softmax(f)_c` for logits `f` of shape (batch, classes >= 2).

    Example:
        >>> Categorical().nll(torch.zeros(1, 4), torch.tensor([2])).item()  # ln 4
        1.3862...
    """

    bounded = True

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy per example."""
        return F.cross_entropy(output, y, reduction="none")

    def conditional(self, output: Tensor) -> Conditional:
        """Class probabilities `p`, variances `p (1 - p)`, entropy `-sum p ln p`."""
        log_p = output.log_softmax(-1)
        p = log_p.exp()
        return Conditional(p, p * (1 - p), -(p * log_p).sum(-1))

    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """`-sum p ln p` of the averaged probabilities."""
        return -torch.special.xlogy(mean, mean).sum(-1)

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """Log of the averaged probability of the label."""
        chosen = means.mean(0).gather(1, y[:, None])[:, 0]
        return chosen.clamp_min(torch.finfo(chosen.dtype).tiny).log()

    def metrics(self, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
        """Accuracy, expected calibration error in 15 bins, Brier score."""
        return {
            "accuracy": metrics.accuracy(mean, y),
            "ece": metrics.expected_calibration_error(mean, y),
            "brier": metrics.brier(mean, y),
        }

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Integer labels (batch,) in [0, classes)."""
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(f"`y` must hold integer class labels, got {y.dtype}: convert with y.long()")
        if y.ndim != 1:
            raise ValueError(f"`y` must have shape (N,), got {tuple(y.shape)}: one label per example")
        if len(y) and int(y.min()) < 0:
            raise ValueError(f"`y` holds the negative label {int(y.min())}: labels start at 0")
        if output_shape is not None:
            if len(output_shape) != 2 or output_shape[1] < 2:
                raise ValueError(
                    "Categorical needs model outputs of shape (batch, classes >= 2), got "
                    f"{tuple(output_shape)}: for one logit use Bernoulli"
                )
            if len(y) and int(y.max()) >= output_shape[1]:
                raise ValueError(
                    f"`y` holds the label {int(y.max())}, but the model has {output_shape[1]} outputs: "
                    f"labels must lie in [0, {output_shape[1] - 1}]"
                )
        return y.long()

    def config(self) -> dict[str, Any]:
        """Nothing to configure."""
        return {}


class Bernoulli(Likelihood):
    """Independent yes/no targets: `p(y = 1 | f) = sigmoid(f)`, any number of outputs.

    Example:
        >>> Bernoulli().nll(torch.zeros(1, 3), torch.ones(1, 3)).item()  # 3 ln 2
        2.0794...
    """

    bounded = True

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """Binary cross-entropy, summed over the outputs of an example."""
        y = aligned(y, output).to(output.dtype)
        loss = F.binary_cross_entropy_with_logits(output, y, reduction="none")
        return loss.flatten(1).sum(1)

    def conditional(self, output: Tensor) -> Conditional:
        """Probabilities `p`, variances `p (1 - p)`, binary entropies."""
        p = output.sigmoid()
        entropy = p * F.softplus(-output) + (1 - p) * F.softplus(output)
        return Conditional(p, p * (1 - p), entropy)

    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Binary entropies of the averaged probabilities."""
        return -torch.special.xlogy(mean, mean) - torch.special.xlogy(1 - mean, 1 - mean)

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """Log of the averaged joint probability of an example's targets."""
        tiny = torch.finfo(means.dtype).tiny
        log_p, log_q = means.clamp_min(tiny).log(), (1 - means).clamp_min(tiny).log()
        joint = (y * log_p + (1 - y) * log_q).flatten(2).sum(2)
        return joint.logsumexp(0) - math.log(len(means))

    def metrics(self, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
        """The part of targets on the right side of 1/2."""
        return {"accuracy": ((mean > 0.5) == (y > 0.5)).double().mean().item()}

    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Values in [0, 1] in the shape of the output; (batch,) stands for (batch, 1)."""
        y = targets_like_output(y, output_shape)
        if y.numel() and not (float(y.min()) >= 0 and float(y.max()) <= 1):
            raise ValueError(f"`y` must lie in [0, 1] for Bernoulli, got [{float(y.min())}, {float(y.max())}]")
        return y

    def config(self) -> dict[str, Any]:
        """Nothing to configure."""
        return {}
