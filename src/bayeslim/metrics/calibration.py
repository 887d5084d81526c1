"""Whether stated confidence matches what happens: reliability of classes, coverage of intervals.

Calibration says nothing about sharpness: a model that always predicts the base rate is calibrated.
Read it beside a proper score (`bayeslim.metrics.scores`), and coverage beside width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayeslim.metrics.checks import (
    bin_count,
    class_labels,
    class_probabilities,
    matching_shapes,
    real_values,
)


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Confidence and accuracy of the predicted class, per bin of confidence.

    Bin b holds the examples with `edges[b] < confidence <= edges[b + 1]`. All B bins are kept;
    an empty one has count 0 and, as there is nothing to average, 0 for confidence and accuracy
    (never NaN): select `curve.count > 0` before plotting.

    Attributes:
        edges: (B + 1,) float64, from 0 to 1.
        confidence: (B,) float64, mean confidence in the bin.
        accuracy: (B,) float64, fraction of the bin predicted correctly.
        count: (B,) int64, number of examples in the bin; sums to N.
    """

    edges: Tensor
    confidence: Tensor
    accuracy: Tensor
    count: Tensor


def reliability_curve(probabilities: Tensor, labels: Tensor, bins: int = 15) -> ReliabilityCurve:
    r"""Return confidence against accuracy in equal-width bins of the confidence.

    .. math:: B_b = \{n : \tfrac{b-1}{B} < \hat p_n \le \tfrac{b}{B}\}, \quad
              \mathrm{conf}_b = \frac{1}{|B_b|} \sum_{n \in B_b} \hat p_n, \quad
              \mathrm{acc}_b = \frac{1}{|B_b|} \sum_{n \in B_b} [\hat y_n = y_n]

    with :math:`\hat p_n = \max_c p_{nc}` the confidence of example n, :math:`\hat y_n` its most
    probable class (the lowest index among equals), :math:`y_n` its label and B the number of
    bins. The edges are rounded to the dtype of `probabilities`, so that a float32 0.2 lies on the
    edge 0.2 and not a rounding error above it.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), integers in 0..C-1.
        bins: number of equal-width bins on [0, 1].

    Returns:
        A `ReliabilityCurve` of B bins on the device of `probabilities`.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6]])
        >>> reliability_curve(probabilities, torch.tensor([0, 1, 1]), bins=4).count.tolist()
        [0, 0, 1, 2]
    """
    bins = bin_count(bins)
    values = class_probabilities(probabilities)
    targets = class_labels(labels, values)
    confidence, predicted = values.max(dim=1)
    edges = (torch.arange(bins + 1, dtype=torch.float64) / bins).to(probabilities.dtype)
    edges = edges.to(values)
    # The first upper edge >= confidence names the bin; rounding may leave a confidence above 1.
    index = torch.searchsorted(edges[1:], confidence).clamp_max(bins - 1)

    def total(per_example: Tensor) -> Tensor:
        # index_add, because bincount with weights has no deterministic CUDA kernel.
        return values.new_zeros(bins).index_add(0, index, per_example)

    count = total(torch.ones_like(confidence))
    occupied = count.clamp_min(1)  # an empty bin becomes 0 / 1
    return ReliabilityCurve(
        edges=edges,
        confidence=total(confidence) / occupied,
        accuracy=total((predicted == targets).double()) / occupied,
        count=count.long(),
    )


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 15) -> float:
    r"""Return the expected calibration error of the predicted class (top-label, L1).

    .. math:: \sum_{b=1}^{B} \frac{|B_b|}{N} \, |\mathrm{acc}_b - \mathrm{conf}_b|

    with :math:`B_b` the examples whose confidence lies in the equal-width bin
    :math:`((b-1)/B, b/B]`, :math:`\mathrm{acc}_b, \mathrm{conf}_b` their accuracy and mean
    confidence (see `reliability_curve`), N the number of examples (Guo et al. 2017, eq. 3).
    torchmetrics closes its bins on the left instead and gives confidence 1 a bin of its own: the
    two differ where a confidence is exactly on an edge, as in a saturated softmax. The value
    depends on `bins` and is biased upwards for small N: compare only equal `bins` and N.

    Args:
        probabilities: (N, C), rows that sum to 1.
        labels: (N,), integers in 0..C-1.
        bins: number of equal-width bins on [0, 1].

    Returns:
        A float in [0, 1].

    Example:
        >>> probabilities = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
        >>> expected_calibration_error(probabilities, torch.tensor([0, 1]))
        0.25
    """
    curve = reliability_curve(probabilities, labels, bins)
    gap = (curve.accuracy - curve.confidence).abs()
    return ((curve.count * gap).sum() / curve.count.sum()).item()


def interval_coverage(lower: Tensor, upper: Tensor, y: Tensor) -> float:
    r"""Return the fraction of targets inside their predicted interval, ends included.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} [l_n \le y_n \le u_n]

    with :math:`l_n, u_n` the ends of the interval for target :math:`y_n`; n runs over all
    elements. Intervals of level 0.95 are calibrated where this is 0.95.

    Args:
        lower: lower ends, any shape.
        upper: upper ends, >= `lower`, the same shape.
        y: targets, the same shape.

    Returns:
        A float in [0, 1].

    Example:
        >>> lower, upper = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0])
        >>> interval_coverage(lower, upper, torch.tensor([1.0, 2.0]))
        0.5
    """
    low, high = _interval(lower, upper)
    target = matching_shapes("lower", low, "y", real_values("y", y))
    return ((low <= target) & (target <= high)).double().mean().item()


def interval_width(lower: Tensor, upper: Tensor) -> float:
    r"""Return the mean width of predicted intervals: at equal coverage, narrower is better.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} (u_n - l_n)

    with :math:`l_n, u_n` the ends of interval n; n runs over all elements.

    Args:
        lower: lower ends, any shape.
        upper: upper ends, >= `lower`, the same shape.

    Returns:
        A float >= 0, in the unit of the ends.

    Example:
        >>> lower, upper = torch.tensor([0.0, -1.0]), torch.tensor([1.0, 2.0])
        >>> interval_width(lower, upper)
        2.0
    """
    low, high = _interval(lower, upper)
    return (high - low).mean().item()


def _interval(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    low = real_values("lower", lower)
    high = matching_shapes("lower", low, "upper", real_values("upper", upper))
    if (narrowest := (high - low).min().item()) < 0:
        raise ValueError(f"`upper` must be >= `lower` everywhere, got a width of {narrowest:g}: were the two swapped?")
    return low, high
