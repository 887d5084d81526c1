"""The dropout rate of a weight, on a log scale."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SMALLEST_MEAN", "log_alpha"]

SMALLEST_MEAN = 1e-8
"""What a smaller `|mean|` counts as: Molchanov et al. 2017's own code and the dissertation, eq. 3.20."""


def log_alpha(mean: Tensor, variance: Tensor) -> Tensor:
    r"""Return `ln alpha = ln(variance / mean^2)`, the log of the Gaussian dropout rate.

    `alpha = p / (1 - p)` for a binary dropout rate `p`, so `ln alpha > 3` means `p > 0.95`: the weight
    is noise and can go. The signal-to-noise ratio is `|mean| / std = exp(-ln alpha / 2)`.
    The logs are taken first, of values within the type's range, so nothing divides, overflows or returns NaN; a weight
    that is exactly zero counts as `|mean| = 1e-8`.

    Args:
        mean: posterior means, any shape.
        variance: posterior variances, same shape.

    Returns:
        `ln alpha`, same shape.

    Example:
        >>> log_alpha(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 1.0]))
        tensor([0.0000, 4.6052])
    """
    mean = mean.to(torch.promote_types(mean.dtype, variance.dtype))  # a posterior states its variance in more digits
    limits = torch.finfo(mean.dtype)
    smallest = max(SMALLEST_MEAN, limits.tiny)  # 1e-8 is 0 in float16
    noise = variance.clamp(limits.tiny, limits.max).log()
    return torch.sub(noise, mean.abs().clamp_min(smallest).log(), alpha=2)
