"""Likelihoods of classes and of yes/no targets."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim import metrics
from bayeslim.gaussian import Gaussian as GaussianOutput
from bayeslim.likelihoods.base import Conditional, Likelihood, aligned, summed, targets_like_output
from bayeslim.moment_rules.activations import elementwise
from bayeslim.moment_rules.attention import softmax

__all__ = ["Bernoulli", "Categorical", "Expectation"]

_softplus = elementwise(F.softplus)


Expectation = Literal["sample", "mean", "probit", "second-order", "gaussian"]


class Categorical(Likelihood):
    r"""Classes: `p(y = c | f) = softmax(f)_c` for logits `f` of shape (batch, classes >= 2).

    Args:
        expectation: how training by moments forms `E[-ln p(y | f)]` for Gaussian logits of mean `m`, variance `v`:

            - "sample": one draw of the logits; unbiased, the ELBO itself.
            - "mean": cross-entropy at `m`; the noise of the logits costs nothing.
            - "probit": cross-entropy at `m / sqrt(1 + pi v / 8)`, the log of the expected likelihood by
              MacKay's rule.
            - "second-order": cross-entropy at `m` plus `0.5 sum_k p_k (1 - p_k) v_k`, `p = softmax(m)`.
            - "gaussian": VDP++'s eq. 11 (corrected), `0.5 sum_k (ln s_k + (y_k - p_k)^2 / s_k + ln 2 pi)` for one-hot
              `y` and the moments `p`, `s` of the softmax, with `s >= 1e-3`; not the likelihood of a label.

    Example:
        >>> Categorical().nll(torch.zeros(1, 4), torch.tensor([2])).item()  # ln 4
        1.3862...
    """

    bounded = True

    def __init__(self, expectation: Expectation = "sample") -> None:
        super().__init__()
        if expectation not in get_args(Expectation):
            known = ", ".join(map(repr, get_args(Expectation)))
            raise ValueError(f"`expectation` must be one of {known}, got {expectation!r}")
        self.expectation: Expectation = expectation

    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy per example."""
        return F.cross_entropy(output, y, reduction="none")

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """See `expectation`; `nll` for a plain output."""
        if not isinstance(output, GaussianOutput):
            return self.nll(output, y)
        if self.expectation == "sample":
            return self.nll(output.rsample(), y)
        mean, variance = output.loc, output.variance
        if self.expectation == "probit":
            return self.nll(mean * torch.rsqrt(1 + math.pi / 8 * variance), y)
        if self.expectation == "gaussian":
            probabilities = softmax(output)
            error = F.one_hot(y, mean.shape[-1]) - probabilities.loc
            spread = probabilities.variance.clamp_min(1e-3)
            return 0.5 * (spread.log() + error.square() / spread + math.log(2 * math.pi)).sum(-1)
        if self.expectation == "second-order":
            p = mean.softmax(-1)
            return self.nll(mean, y) + 0.5 * (p * (1 - p) * variance).sum(-1)
        return self.nll(mean, y)

    def conditional(self, output: Tensor) -> Conditional:
        """Class probabilities `p`, variances `p (1 - p)`, entropy `-sum p ln p`."""
        log_p = output.log_softmax(-1)
        p = log_p.exp()
        return Conditional(p, p * (1 - p), -(p * log_p).sum(-1))

    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """`-sum p ln p` of the averaged probabilities."""
        return -torch.special.xlogy(mean, mean).sum(-1)

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """Log of the averaged probability of the label; probabilities below the smallest float count as that.

        A label that float32 gives no chance costs 87.3 nats, in float64 708.
        """
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
        if output_shape is not None:
            self.check_outputs(output_shape)
        if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
            raise ValueError(f"`y` must hold integer class labels, got {y.dtype}: convert with y.long()")
        if y.ndim != 1:
            raise ValueError(f"`y` must have shape (N,), got {tuple(y.shape)}: one label per example")
        if len(y) and int(y.min()) < 0:
            raise ValueError(f"`y` holds the negative label {int(y.min())}: labels start at 0")
        if output_shape is not None and len(y) and int(y.max()) >= output_shape[1]:
            raise ValueError(
                f"`y` holds the label {int(y.max())}, but the model has {output_shape[1]} outputs: "
                f"labels must lie in [0, {output_shape[1] - 1}]"
            )
        return y.long()

    def check_outputs(self, shape: torch.Size) -> None:
        """Logits (batch, classes >= 2): one label per example."""
        if len(shape) == 2 and shape[1] > 1:
            return
        advice = "for one logit use Bernoulli"
        if len(shape) > 2:
            advice = (
                "every example has one label; for one per token or pixel write a subclass whose `nll` sums over the "
                "labels of an example, with its own `check_outputs`, `check_targets`, `log_density` and `metrics`"
            )
        raise ValueError(
            f"Categorical needs model outputs of shape (batch, classes >= 2), got {tuple(shape)}: {advice}"
        )

    def classes(self, mean: Tensor) -> Tensor:
        """The most probable class, (batch,)."""
        return mean.argmax(-1)

    def config(self) -> dict[str, Any]:
        """The expectation, where it is not the default."""
        return {} if self.expectation == "sample" else {"expectation": self.expectation}


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
        return summed(loss, 1)

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """`E[softplus(f)] - y m` for Gaussian outputs, by quadrature; `nll` for a plain one."""
        if not isinstance(output, GaussianOutput):
            return self.nll(output, y)
        y = aligned(y, output.loc).to(output.dtype)
        return summed(_softplus(output).loc - y * output.loc, 1)

    def conditional(self, output: Tensor) -> Conditional:
        """Probabilities `p`, variances `p (1 - p)`, binary entropies."""
        p, q = output.sigmoid(), output.neg().sigmoid()  # 1 - p would round to 0 for a sure yes
        return Conditional(p, p * q, p * F.softplus(-output) + q * F.softplus(output))

    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Binary entropies of the averaged probabilities."""
        return -torch.special.xlogy(mean, mean) - torch.special.xlogy(1 - mean, 1 - mean)

    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """Log of the averaged joint probability of an example's targets.

        The probability of a no is `1 - p`, and `p (1 - p) / p` where that would round to 0.
        """
        tiny = torch.finfo(means.dtype).tiny
        q = torch.where(means > 0.5, variances / means, 1 - means)
        log_p, log_q = means.clamp_min(tiny).log(), q.clamp_min(tiny).log()
        joint = summed(y * log_p + (1 - y) * log_q, 2)
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

    def classes(self, mean: Tensor) -> Tensor:
        """1 where a yes is more probable than a no, else 0: (batch,) for one output, else in the shape of the mean."""
        yes = (mean > 0.5).long()
        return yes[:, 0] if mean.shape[1:] == (1,) else yes

    def config(self) -> dict[str, Any]:
        """Nothing to configure."""
        return {}
