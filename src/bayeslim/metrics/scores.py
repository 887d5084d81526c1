"""Scores of a prediction against what happened: smaller is better, except accuracy.

All but `accuracy` and `rmse` are proper scoring rules: their expectation is least when the stated
distribution is the true one, so they reward honest uncertainty. Every function returns a Python
float, accumulated in float64.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.metrics.checks import (
    class_labels,
    class_probabilities,
    matching_shapes,
    positive_values,
    real_values,
)

# Below the least normal float32 (1.18e-38): only a probability that underflowed is lifted, and one
# impossible label costs 87.5 nats instead of making the mean infinite.
PROBABILITY_FLOOR = 1e-38


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    r"""Return the fraction of examples whose most probable class is the label.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} [\arg\max_c p_{nc} = y_n]

    with :math:`p_{nc}` the probability of class c for example n and :math:`y_n` its label. Among
    equally probable classes the lowest index is the prediction.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), integers in 0..C-1.

    Returns:
        A float in [0, 1].

    Example:
        >>> probabilities = torch.tensor([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
        >>> round(accuracy(probabilities, torch.tensor([0, 1, 1])), 4)
        0.6667
    """
    values = class_probabilities(probabilities)
    targets = class_labels(labels, values)
    return (values.argmax(1) == targets).double().mean().item()


def negative_log_likelihood(probabilities: Tensor, labels: Tensor, floor: float = PROBABILITY_FLOOR) -> float:
    r"""Return the mean negative log-probability, in nats, of the labels.

    .. math:: -\frac{1}{N} \sum_{n=1}^{N} \log \max(p_{n y_n}, \epsilon)

    with :math:`p_{n y_n}` the probability given to the label :math:`y_n` of example n and
    :math:`\epsilon` the `floor`. The default 1e-38 caps one example at 87.5 nats; it changes no
    probability that float32 represents as a normal number.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), integers in 0..C-1.
        floor: least probability of a label, in [0, 1); 0 gives inf for an impossible label.

    Returns:
        A float >= 0 (up to the rounding of the row sums).

    Example:
        >>> probabilities = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
        >>> round(negative_log_likelihood(probabilities, torch.tensor([0, 0])), 4)
        1.0397
    """
    if not 0 <= floor < 1:
        raise ValueError(f"`floor` must be in [0, 1), got {floor!r}: pass e.g. 1e-38")
    values = class_probabilities(probabilities)
    targets = class_labels(labels, values)
    chosen = values.gather(1, targets[:, None]).clamp_min(floor)
    return (0.0 - chosen.log()).mean().item()  # 0 - x, so that certainty gives 0.0 and not -0.0


def brier(probabilities: Tensor, labels: Tensor) -> float:
    r"""Return the Brier score, the mean squared distance between probabilities and outcome.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} \sum_{c=1}^{C} (p_{nc} - [y_n = c])^2

    with :math:`p_{nc}` the probability of class c for example n and :math:`y_n` its label. This
    is Brier's (1950) convention: a sum over classes, in [0, 2]. Subtract 1 for the convention of
    TensorFlow Probability, :math:`\sum_c p_{nc}^2 - 2 p_{n y_n}`, which the k-tied paper reports.
    For two classes it is twice the score of the single column, :math:`(p_{n1} - y_n)^2`.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), integers in 0..C-1.

    Returns:
        A float in [0, 2].

    Example:
        >>> probabilities = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
        >>> brier(probabilities, torch.tensor([0, 1]))
        0.25
    """
    values = class_probabilities(probabilities)
    targets = class_labels(labels, values)
    outcome = F.one_hot(targets, values.shape[1])
    return (values - outcome).square().sum(1).mean().item()


def rmse(mean: Tensor, y: Tensor) -> float:
    r"""Return the root mean squared error.

    .. math:: \sqrt{\frac{1}{N} \sum_{n=1}^{N} (\mu_n - y_n)^2}

    with :math:`\mu_n` the predicted mean of target :math:`y_n`; n runs over all elements.

    Args:
        mean: predicted means, any shape.
        y: targets, the same shape.

    Returns:
        A float >= 0, in the unit of `y`.

    Example:
        >>> mean = torch.tensor([1.0, 2.0])
        >>> rmse(mean, torch.tensor([4.0, -1.0]))
        3.0
    """
    centre = real_values("mean", mean)
    target = matching_shapes("mean", centre, "y", real_values("y", y))
    return (centre - target).square().mean().sqrt().item()


def gaussian_nll(mean: Tensor, variance: Tensor, y: Tensor) -> float:
    r"""Return the mean negative log-density, in nats, of the targets under Gaussian predictions.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} \frac12 \left( \log 2 \pi v_n
              + \frac{(y_n - \mu_n)^2}{v_n} \right)

    with :math:`\mu_n, v_n` the predicted mean and variance of target :math:`y_n`; n runs over all
    elements, so for (N, D) targets multiply by D for the nats of one row. `variance` is that of
    the target: epistemic plus aleatoric.

    Args:
        mean: predicted means, any shape.
        variance: predicted variances, > 0, the same shape.
        y: targets, the same shape.

    Returns:
        A float of either sign.

    Example:
        >>> mean, variance = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 4.0])
        >>> round(gaussian_nll(mean, variance, torch.tensor([0.0, 3.0])), 4)
        1.5155
    """
    centre = real_values("mean", mean)
    spread = matching_shapes("mean", centre, "variance", positive_values("variance", variance))
    target = matching_shapes("mean", centre, "y", real_values("y", y))
    squared = (target - centre).square() / spread
    return 0.5 * (math.log(2 * math.pi) + spread.log() + squared).mean().item()


def crps_gaussian(mean: Tensor, std: Tensor, y: Tensor) -> float:
    r"""Return the mean continuous ranked probability score of Gaussian predictions.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} \sigma_n \left( z_n (2 \Phi(z_n) - 1) + 2 \varphi(z_n)
              - \frac{1}{\sqrt\pi} \right), \quad z_n = \frac{y_n - \mu_n}{\sigma_n}

    with :math:`\mu_n, \sigma_n` the predicted mean and standard deviation of target :math:`y_n`,
    :math:`\Phi, \varphi` the standard normal distribution function and density. It is the closed
    form of :math:`\int (F_n(x) - [x \ge y_n])^2 dx`, :math:`F_n` the predicted distribution
    function (Gneiting and Raftery 2007, section 4.2).

    Args:
        mean: predicted means, any shape.
        std: predicted standard deviations, > 0, the same shape.
        y: targets, the same shape.

    Returns:
        A float >= 0, in the unit of `y`.

    Example:
        >>> mean, std = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 2.0])
        >>> round(crps_gaussian(mean, std, torch.tensor([0.0, 0.0])), 4)
        0.3505
    """
    centre = real_values("mean", mean)
    scale = matching_shapes("mean", centre, "std", positive_values("std", std))
    target = matching_shapes("mean", centre, "y", real_values("y", y))
    error = target - centre
    z = error / scale
    density = (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
    spread = scale * (2 * density - 1 / math.sqrt(math.pi))
    return (error * torch.erf(z / math.sqrt(2)) + spread).mean().item()  # erf = 2 Phi(z) - 1


def crps_samples(samples: Tensor, y: Tensor, fair: bool = True) -> float:
    r"""Return the mean continuous ranked probability score of predictions given as samples.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} \left( \frac1S \sum_{i=1}^{S} |x_{in} - y_n|
              - \frac{1}{2 M} \sum_{i,j=1}^{S} |x_{in} - x_{jn}| \right)

    with :math:`x_{in}` sample i for target :math:`y_n`. `fair=True` divides by
    :math:`M = S(S - 1)`: an unbiased estimate of :math:`E|X - y| - \frac12 E|X - X'|` whatever S
    (Ferro 2014), which single targets may push below 0. `fair=False` divides by :math:`M = S^2`:
    the exact score of the empirical distribution, too large by :math:`E|X - X'| / 2S` on average.
    Sorting makes it O(S log S), by :math:`\sum_{i,j} |x_i - x_j| = 2 \sum_i (2i - S - 1) x_{(i)}`.

    Args:
        samples: (S, ...), samples first; S >= 2 where `fair`.
        y: targets, the shape (...) of one sample.
        fair: whether the estimate is unbiased for the distribution the samples came from.

    Returns:
        A float, in the unit of `y`.

    Example:
        >>> samples, y = torch.tensor([[0.0], [2.0]]), torch.tensor([1.0])
        >>> crps_samples(samples, y), crps_samples(samples, y, fair=False)
        (0.0, 0.5)
    """
    draws = real_values("samples", samples)
    if draws.ndim == 0 or (fair and draws.shape[0] < 2):
        raise ValueError(
            f"`samples` must be (S, ...) with S >= {2 if fair else 1}, got shape "
            f"{tuple(draws.shape)}: draw more samples, or pass fair=False for S = 1"
        )
    target = matching_shapes("samples[0]", draws[0], "y", real_values("y", y))
    count = draws.shape[0]
    deviation = (draws - target).sort(dim=0).values  # shifting by y leaves the differences
    weight = 2.0 * torch.arange(1, count + 1, dtype=torch.float64, device=draws.device) - count - 1
    pairs = torch.tensordot(weight, deviation, dims=1) / (count * (count - 1 if fair else count))
    return (deviation.abs().mean(0) - pairs).mean().item()
