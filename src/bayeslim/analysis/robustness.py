"""How a classifier and its uncertainty behave under noisy inputs and under plain magnitude pruning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.convert import bayesianize_
from bayeslim.likelihoods.base import Likelihood, likelihood_of
from bayeslim.predictive.evaluate import evaluate
from bayeslim.predictive.inputs import as_tensor
from bayeslim.predictive.sample import Method, predict
from bayeslim.pruning.criteria import MAGNITUDE
from bayeslim.pruning.prune import bayes_layers, prune_
from bayeslim.runtime.seeds import check_seed, derived_seed
from bayeslim.surgery import copied

__all__ = ["SNRS", "MagnitudePoint", "NoisePoint", "add_noise", "magnitude_curve", "noise_sweep", "spearman"]

SNRS = (-6, -3, 1, 5, 10, 20, 40)
"""Signal-to-noise ratios in decibels of the VDP++ experiments."""


@dataclass(frozen=True)
class NoisePoint:
    """A classifier at one level of noise, averaged over examples."""

    snr: float
    """Signal-to-noise ratio in decibels."""
    accuracy: float
    variance: float
    """Epistemic variance of the predicted class's probability."""
    entropy: float
    """Entropy of the predictive in nats."""


@dataclass(frozen=True)
class MagnitudePoint:
    """A network without a part of its smallest weights."""

    fraction: float
    scores: dict[str, float]
    """As of `evaluate`."""


def add_noise(x: Tensor, snr_db: float, seed: int = 0) -> Tensor:
    r"""Add Gaussian noise of a given signal-to-noise ratio to every image, without clipping.

    `Var[noise] = Var[pixels of the image] / 10^(snr_db / 10)`: each image has its own level, a constant one gets none.

    Args:
        x: images (N, ...), floating point.
        snr_db: the ratio in decibels; lower is noisier, 0 is as much noise as signal.
        seed: of the noise. One seed gives the same pattern for all ratios, so that levels compare.

    Returns:
        The noisy images, in the shape of `x`.

    Raises:
        TypeError: if `x` is not floating point.
        ValueError: if the ratio is not finite or the seed is not valid.

    Example:
        >>> noisy = add_noise(torch.rand(5, 1, 28, 28), snr_db=-6)
        >>> noisy.shape
        torch.Size([5, 1, 28, 28])
    """
    if not x.is_floating_point():
        raise TypeError(f"`x` must be floating point to take noise, got {x.dtype}: convert it, e.g. x / 255")
    if not math.isfinite(snr_db):
        raise ValueError(f"`snr_db` must be finite, got {snr_db}: pass e.g. 10")
    seed = check_seed(seed)
    # Derived, since data drawn from the same seed would be the noise itself; on the CPU, the same for every device.
    generator = torch.Generator().manual_seed(derived_seed(seed, 0))
    noise = torch.randn(x.shape, generator=generator, dtype=x.dtype).to(x.device)
    std = x.flatten(1).std(1, unbiased=False) * 10 ** (-snr_db / 20)
    return x + noise * std.view(-1, *[1] * (x.ndim - 1))


def noise_sweep(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    snrs: Sequence[float] = SNRS,
    *,
    method: Method = "moments",
    samples: int = 200,
    likelihood: Likelihood | None = None,
    batch_size: int = 1024,
    seed: int = 0,
) -> list[NoisePoint]:
    """Accuracy and uncertainty of a classifier on inputs with more and more noise (figures 1c and 3 of VDP++).

    Args:
        model: the classifier; one output per class.
        x: inputs (N, ...).
        y: labels (N,).
        snrs: signal-to-noise ratios in decibels.
        method: as of `predict`.
        samples: as of `predict`; "moments" draws outputs, "mean" ignores it and has no epistemic variance.
        likelihood: None takes the one `fit` trained with.
        batch_size: examples per pass.
        seed: of the noise and of the samples.

    Returns:
        One point per ratio, in their order.

    Raises:
        ValueError: if labels and predictions do not fit, or an argument of `predict` is wrong.

    Example:
        >>> for point in noise_sweep(model, x_test, y_test):
        ...     print(point.snr, point.accuracy, point.variance)
    """
    labels = as_tensor("y", y)
    if labels.is_floating_point() or labels.shape != (len(x),):
        raise ValueError(
            f"`y` must hold {len(x)} integer labels, one per input, got {labels.dtype} of shape {tuple(labels.shape)}"
        )
    points: list[NoisePoint] = []
    for snr in snrs:
        prediction = predict(
            model,
            add_noise(x, snr, seed),
            samples=samples,
            likelihood=likelihood,
            method=method,
            batch_size=batch_size,
            keep_samples=False,
            seed=seed,
        )
        if prediction.entropy.ndim != 1 or prediction.mean.ndim != 2:
            raise ValueError(
                f"noise_sweep needs a classifier with one output per class, got the likelihood {prediction.likelihood} "
                f"and predictions of shape {tuple(prediction.mean.shape)}: pass likelihood=bl.Categorical()"
            )
        classes = prediction.classes
        variance = prediction.epistemic.gather(1, classes[:, None])
        hits = classes == labels.to(classes.device)
        averages = (values.double().mean().item() for values in (hits, variance, prediction.entropy))
        points.append(NoisePoint(snr, *averages))
    return points


def magnitude_curve(
    model: nn.Module,
    data: Any,
    fractions: Sequence[float],
    *,
    samples: int = 0,
    likelihood: Likelihood | None = None,
    method: Method | None = None,
    seed: int = 0,
) -> list[MagnitudePoint]:
    """Scores after setting the weights with the smallest `|mean|` to zero, ranked over all layers together.

    Global L1 pruning without retraining (figure 2 of VDP++), biases excluded. It works for a plain network as well,
    whose linear, convolutional, recurrent and attention weights then count, as means without variance.

    Args:
        model: Bayesian or plain network; not changed.
        data: (x, y), a Dataset or a DataLoader.
        fractions: parts of the weights to remove, each in [0, 1).
        samples: posterior samples per evaluation; 0 uses the posterior mean, as a plain network always does.
        likelihood: None takes the one `fit` trained with.
        method: see `evaluate`; a plain network always takes "mean".
        seed: of the samples, the same for all points.

    Returns:
        One point per fraction, in their order.

    Example:
        >>> curve = magnitude_curve(model, (x_test, y_test), [0.0, 0.5, 0.9])
        >>> [point.scores["accuracy"] for point in curve]
    """
    check_network(model, "prune")
    chosen = likelihood_of(model, likelihood)
    if bayes_layers(model):
        bayesian = model
    else:
        bayesian, samples, method = bayesianize_(copied(model)), 0, "mean"
    points: list[MagnitudePoint] = []
    for fraction in fractions:
        pruned = copied(bayesian)
        prune_(pruned, MAGNITUDE, amount=fraction, allow_empty=True)
        scores = evaluate(pruned, data, samples=samples, likelihood=chosen, method=method, seed=seed)
        points.append(MagnitudePoint(fraction, scores))
    return points


def spearman(a: Sequence[float] | Tensor, b: Sequence[float] | Tensor) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks, ties sharing their average rank.

    Args:
        a: the values of one curve.
        b: those of the other, as many.

    Returns:
        Between -1 and 1; NaN if one of them is constant.

    Raises:
        ValueError: if the numbers of values differ or are below two, or one is NaN.

    Example:
        >>> spearman([1, 2, 3], [10, 20, 15])
        0.5
    """
    first, second = (torch.as_tensor(values, dtype=torch.float64).flatten() for values in (a, b))
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(
            f"`a` and `b` must have the same number of values, at least 2, got {len(first)}, {len(second)}"
        )
    if bool((first.isnan() | second.isnan()).any()):
        raise ValueError("`a` and `b` must not hold NaN, which has no rank: leave those points out of both")
    x, y = (ranks - ranks.mean() for ranks in map(_ranks, (first, second)))
    return ((x @ y) / (x.norm() * y.norm())).item()


def _ranks(values: Tensor) -> Tensor:
    """The average of how many are smaller and how many are not larger: the rank, up to a constant."""
    smaller, up_to = (values[None] < values[:, None]).sum(1), (values[None] <= values[:, None]).sum(1)
    return 0.5 * (smaller + up_to).double()
