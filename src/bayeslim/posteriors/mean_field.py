"""The fully factorised Gaussian posterior with additive noise."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayeslim.compiled_code import compiling
from bayeslim.joint_draw import drawn, drawn_product, spread
from bayeslim.linear_draw import draw_outputs, draw_weights
from bayeslim.linear_moments import moments_of_gaussians, moments_of_vectors
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import (
    Posterior,
    full,
    soft_upper_bound,
    soft_upper_bound_inverse,
)
from bayeslim.two_products import draw_by_two_products, two_products

__all__ = ["MeanField", "fan_in_mean_field"]

DEFAULT_SCALE = math.exp(-5.0)
"""`ln variance = -10`: Molchanov et al. 2017's own code."""

LOG_OF_NOTHING = -800.0
"""The log of a standard deviation of 0: its exponential is 0 even in float64, and the KL stays finite."""


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
    own_draws: ClassVar[bool] = True
    """Whether draws and moments are as defined here, which is what the functions for linear layers compute."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        defined = ("mean", "variance", "rsample")
        cls.own_draws = all(getattr(cls, name) is getattr(MeanField, name) for name in defined)

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
        return spread(self, self.loc, self.log_std())

    def log_std(self) -> Tensor:
        """`log_scale`, below its bound."""
        return soft_upper_bound(full(self.log_scale), self.log_max_scale)

    def rsample(self) -> Tensor:
        """`loc + scale * noise`."""
        return drawn(self, self.loc, self.log_std())

    def _joins(self, op: Op) -> bool:
        """Whether the functions for linear layers compute what draws and moments of this class are."""
        return self.own_draws and type(op) is LinearOp

    def drawn_output(self, op: Op, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """See `Posterior.drawn_output`: of linear maps, in 16 bits on CUDA and in an objective on a CPU."""
        if not self._joins(op):
            return None
        return (drawn_product if self.loc.is_cuda else draw_weights)(self, self.loc, self.log_std(), x, bias)

    def locally_drawn_output(self, op: Op, x: Tensor, bias: Tensor | None) -> Tensor | None:
        """See `Posterior.locally_drawn_output`: of linear maps on a CPU, compiled or in an objective."""
        if not self._joins(op):
            return None
        if compiling():
            return draw_by_two_products(x, self.loc, self.log_std(), bias)
        return draw_outputs(self, self.loc, self.log_std(), x, bias)

    def output_moments(self, op: Op, x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """See `Posterior.output_moments`: of linear maps on a CPU, compiled or in an objective."""
        if not self._joins(op):
            return None
        if compiling():
            return two_products(x, self.loc, self.log_std(), bias)
        return moments_of_vectors(self, self.loc, self.log_std(), x, bias)

    def propagated(self, op: Op, mean: Tensor, variance: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """See `Posterior.propagated`: of linear maps in an objective on a CPU."""
        if not self._joins(op):
            return None
        return moments_of_gaussians(self, self.loc, self.log_std(), mean, variance, bias)

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
