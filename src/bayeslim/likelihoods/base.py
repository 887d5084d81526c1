"""What a likelihood must be able to say, and which one a network was trained with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian as GaussianOutput
from bayeslim.runtime.notes import note_, noted

__all__ = [
    "Conditional",
    "Likelihood",
    "aligned",
    "empirical_quantile",
    "likelihood_of",
    "note_lost_likelihood_",
    "remember_likelihood_",
    "remembered_likelihood",
    "summed",
    "targets_like_output",
]


class Conditional(NamedTuple):
    """The distribution of the target given one network output."""

    mean: Tensor
    """Probabilities (batch, classes), or regression means (batch, outputs), or (batch,) as the network has them."""
    variance: Tensor
    """Variance of the target, same shape."""
    entropy: Tensor
    """In nats: (batch,) for classes, (batch, outputs) otherwise."""


class Likelihood(nn.Module, ABC):
    """`p(y | f)` for a network output `f`: its negative log and its moments."""

    bounded: ClassVar[bool] = False
    """Whether the predictive mean is a probability."""

    @abstractmethod
    def nll(self, output: Tensor, y: Tensor) -> Tensor:
        """`-ln p(y | output)` in nats, one value per example: (batch,)."""

    @abstractmethod
    def conditional(self, output: Tensor) -> Conditional:
        """Mean, variance and entropy of the target given this output."""

    @abstractmethod
    def predictive_entropy(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Entropy of the averaged predictive distribution with these moments."""

    @abstractmethod
    def check_targets(self, y: Tensor, output_shape: torch.Size | None = None) -> Tensor:
        """Return valid targets or raise ValueError saying what is wrong with them."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Keyword arguments that rebuild this likelihood."""

    @abstractmethod
    def log_density(self, means: Tensor, variances: Tensor, y: Tensor) -> Tensor:
        """`ln (1/S) sum_s p(y | f_s)` per example, from the conditionals of `S` outputs.

        Args:
            means: conditional means, samples first.
            variances: conditional variances, same shape.
            y: targets.
        """

    @abstractmethod
    def metrics(self, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, float]:
        """Scores of a predictive mean and total variance, besides the log-likelihood."""

    def check_outputs(self, shape: torch.Size) -> None:
        """Raise ValueError if it cannot read outputs of this shape, examples first; any will do unless overridden."""

    def classes(self, mean: Tensor) -> Tensor:
        """What a predictive mean decides for, as integers; see `Prediction.classes`.

        Raises:
            ValueError: if the targets are no classes.
        """
        raise ValueError(f"{type(self).__name__} has no classes: take the `mean` of the prediction")

    def quantile(self, means: Tensor, variances: Tensor, level: float) -> Tensor:
        """Quantile over the samples (first axis) of the conditional mean."""
        return empirical_quantile(means, level)

    def exact_moments(self, output: GaussianOutput) -> tuple[Tensor, Tensor, Tensor] | None:
        """Predictive mean, epistemic and aleatoric variance for a Gaussian output, if closed form."""
        return None

    def expected_nll(self, output: Tensor | GaussianOutput, y: Tensor) -> Tensor:
        """`E[-ln p(y | f)]` over a Gaussian output by one draw; `nll` for a plain one."""
        return self.nll(output.rsample() if isinstance(output, GaussianOutput) else output, y)


def empirical_quantile(samples: Tensor, level: float) -> Tensor:
    """The `level` quantile over the first axis, interpolated linearly."""
    ordered = samples.sort(dim=0).values
    position = level * (len(ordered) - 1)
    low = int(position)
    return ordered[low].lerp(ordered[min(low + 1, len(ordered) - 1)], position - low)


def targets_like_output(y: Tensor, output_shape: torch.Size | None) -> Tensor:
    """Targets as floats, (batch,) as (batch, 1), in the shape of the outputs, which may be (batch,) too."""
    if y.is_complex():
        raise ValueError(f"`y` must be real, got {y.dtype}")
    if not y.is_floating_point():
        y = y.to(torch.get_default_dtype())
    if not bool(y.isfinite().all()):
        bad = int((~y.isfinite()).sum())
        raise ValueError(f"`y` holds {bad} NaN or infinite values: drop or impute those rows")
    if y.ndim == 1:
        y = y[:, None]
    if output_shape is not None and len(output_shape) == 1 and y.shape[1:] == (1,):
        y = y[:, 0]
    if output_shape is not None and y.shape[1:] != output_shape[1:]:
        raise ValueError(
            f"`y` has {tuple(y.shape[1:])} values per example, the model predicts "
            f"{tuple(output_shape[1:])}: they must agree"
        )
    return y


def aligned(y: Tensor, mean: Tensor) -> Tensor:
    """Targets in the shape of the means, (batch,) as (batch, 1) or the reverse; never broadcast against them."""
    if y.ndim == 1 and mean.ndim == 2:
        y = y[:, None]
    elif mean.ndim == 1 and y.shape[1:] == (1,):
        y = y[:, 0]
    if y.shape != mean.shape:
        advice = "they must agree" if mean.ndim else "write squeeze(-1) for squeeze()"
        raise ValueError(f"`y` has shape {tuple(y.shape)}, the model predicts {tuple(mean.shape)}: {advice}")
    return y


def summed(values: Tensor, axes: int) -> Tensor:
    """Sum over everything behind the first `axes`, which may be nothing."""
    return values.flatten(axes).sum(axes) if values.ndim > axes else values


def remember_likelihood_(model: nn.Module, likelihood: Likelihood) -> None:
    """Note on `model` which likelihood it was trained with, for `predict` and `save`.

    Copies and pickles of the network know it too.
    """
    note_(model, "likelihood", likelihood)


def remembered_likelihood(model: nn.Module) -> Likelihood | None:
    """What `remember_likelihood_` noted on `model`, if anything."""
    return noted(model, "likelihood")


def note_lost_likelihood_(model: nn.Module, why: str) -> None:
    """Note on `model` why no likelihood is known, for the message of `predict`.

    Args:
        model: the network.
        why: a clause that says so, and what to do instead.
    """
    note_(model, "lost likelihood", why)


def likelihood_of(model: nn.Module, likelihood: Likelihood | None = None) -> Likelihood:
    """Return `likelihood`, or the one `model` was trained with, or explain what to pass."""
    found = likelihood if likelihood is not None else remembered_likelihood(model)
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"`likelihood` must be a likelihood, got {likelihood!r}: pass e.g. bl.Categorical() or "
            "bl.likelihoods.Gaussian(noise=0.1)"
        )
    if not isinstance(found, Likelihood):
        why = noted(model, "lost likelihood") or "`bl.fit` remembers it; for a network trained elsewhere"
        raise ValueError(
            f"`likelihood` is not known: {why} pass e.g. likelihood=bl.Categorical() or "
            "bl.likelihoods.Gaussian(noise=0.1)"
        )
    return found
