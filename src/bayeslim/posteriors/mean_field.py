"""The fully factorised Gaussian posterior with additive noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayeslim import kernels
from bayeslim.kernels import Facts
from bayeslim.kernels.facts import LOG_OF_NOTHING as LOG_OF_NOTHING
from bayeslim.posteriors.base import (
    Posterior,
    full,
    soft_upper_bound,
    soft_upper_bound_inverse,
)

__all__ = ["MeanField", "fan_in_mean_field"]

DEFAULT_SCALE = math.exp(-5.0)
"""`ln variance = -10`: Molchanov et al. 2017's own code."""


class MeanField(Posterior):
    r"""`q(W) = prod_i N(w_i; loc_i, scale_i^2)` with `scale = exp(log_scale)`.

    One mean and one log standard deviation per weight: Graves 2011, Blundell et al. 2015, and the
    additive form of variational dropout (Molchanov et al. 2017, eq. 10).

    Args:
        init: the initial weight; becomes the mean.
        scale: initial standard deviation, one for all weights or a tensor in their shape. The default is
            `ln variance = -10`.
        max_scale: upper bound of every standard deviation, approached smoothly; the Gamma
            hyperprior needs one (`exp(-4)` in the empirical-Bayes paper).

    Example:
        >>> q = MeanField(torch.zeros(3, 2), scale=0.1)
        >>> q.variance().shape
        torch.Size([3, 2])
    """

    scale_parameters = ("log_scale",)

    def __init__(self, init: Tensor, scale: float | Tensor = DEFAULT_SCALE, max_scale: float = math.inf) -> None:
        fits = bool(((scale > 0) & (scale < max_scale)).all()) if isinstance(scale, Tensor) else 0 < scale < max_scale
        if not fits:
            shown = f"values from {scale.min()} to {scale.max()}" if isinstance(scale, Tensor) else scale
            raise ValueError(f"`scale` must be positive and below `max_scale`={max_scale}, got {shown}: pass e.g. 0.01")
        super().__init__()
        self.log_max_scale = math.log(max_scale)
        self.loc = nn.Parameter(init.detach().clone())
        self.log_scale = nn.Parameter(torch.empty_like(full(self.loc)))
        self.set_scale_(scale)

    @torch.no_grad()
    def set_scale_(self, scale: float | Tensor) -> None:
        """Set the standard deviations, to one value or to a tensor in the shape of the weight; 0 is exact."""
        if isinstance(scale, Tensor):
            raw = soft_upper_bound_inverse(full(scale).log(), self.log_max_scale)
            self.log_scale.copy_(raw.clamp_min(LOG_OF_NOTHING))
        else:
            log_scale = math.log(scale) if scale > 0 else LOG_OF_NOTHING
            self.log_scale.fill_(soft_upper_bound_inverse(log_scale, self.log_max_scale))

    def mean(self) -> Tensor:
        """The parameter `loc`."""
        return self.loc

    def variance(self) -> Tensor:
        """`exp(2 log_scale)`."""
        return kernels.weight_variance(self)

    def log_std(self) -> Tensor:
        """`log_scale`, below its bound."""
        raw = self.log_scale if self.log_scale.dtype.itemsize >= 4 else full(self.log_scale)
        return raw if self.log_max_scale == math.inf else soft_upper_bound(raw, self.log_max_scale)

    def rsample(self) -> Tensor:
        """`loc + scale * noise`."""
        return kernels.draw_weight(self)

    def facts(self) -> Facts:
        """Mean and log standard deviation."""
        return Facts(self.loc, log_std=self.log_std)

    def config(self) -> dict[str, float | int | None]:
        """The bound; the scales themselves are parameters."""
        if math.isinf(self.log_max_scale):
            return {}
        bound = math.exp(self.log_max_scale)
        return {"scale": 0.5 * bound, "max_scale": bound}  # the default scale may exceed the bound


def fan_in_mean_field(init: Tensor, ratio: float = 0.1, **options: float) -> MeanField:
    r"""`MeanField` whose initial scale shrinks with the fan-in: `scale = ratio sqrt(2 / fan_in)`.

    Each output of a layer sums `fan_in` noisy products, so a fixed scale makes variances grow with the width, layer
    after layer. Relative to He's means, of variance `2 / fan_in`, this adds the same share `ratio^2` of the signal's
    power in every layer, whatever its size: propagated moments stay bounded in deep networks. (The VDP++ code starts
    from variances of 0.7 to 5 and multiplies each layer's output variance by 1e-3 instead.)

    Args:
        init: the initial weight `(out, in, *kernel)`, or a bias, which counts as fan-in 1.
        ratio: initial noise of an output relative to its signal.
        **options: of `MeanField`; a `scale` given there wins.

    Example:
        >>> fan_in_mean_field(torch.zeros(300, 784)).variance()[0, 0]  # 0.01 * 2 / 784
        tensor(2.5510e-05)
    """
    if not 0 < ratio < math.inf:
        raise ValueError(f"`ratio` must be positive, got {ratio}: pass e.g. 0.1")
    return MeanField(init, **({"scale": ratio * math.sqrt(2 / init[0].numel())} | options))
