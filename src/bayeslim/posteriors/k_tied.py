"""The k-tied Normal posterior: standard deviations of low rank."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayeslim import kernels
from bayeslim.kernels import Facts
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, full, product_type

__all__ = ["KTied"]


class KTied(Posterior):
    r"""A factorised Gaussian whose standard deviations form a matrix of rank `k`.

    `scale_ij = sum_r u_ir v_jr` with `U = exp(log_in)` (fan_in x k) and `V = exp(log_out)`
    (out x k): `k (fan_in + out)` scale parameters instead of `fan_in * out`
    (Swiatkowski et al. 2020, section 3). Convolution kernels are flattened to (fan_in, out).

    Under local reparameterisation the output variance needs `k (k + 1) / 2` filters instead of
    `out`, since `scale_ij^2 = sum_{r,s} (u_ir u_is)(v_jr v_js)`.

    Args:
        init: the initial weight; becomes the mean.
        k: the rank, 1 <= k <= min(fan_in, out).
        scale: initial standard deviation.
        jitter: standard deviation of the noise on the initial `log_in` and `log_out`, which breaks
            the symmetry between the `k` terms (0.1 in the paper).

    Example:
        >>> q = KTied(torch.zeros(4, 3), k=2, scale=0.01, jitter=0.0)
        >>> q.variance().sqrt()[0, 0].item()
        0.009999999776482582
    """

    scale_parameters = ("log_in", "log_out")

    def __init__(self, init: Tensor, k: int = 2, scale: float = 0.01, jitter: float = 0.1) -> None:
        if init.ndim < 2:
            raise ValueError(
                f"`init` must have at least 2 axes, got shape {tuple(init.shape)}: a vector has no "
                "rank to tie, use MeanField for biases"
            )
        fan_in, out = init[0].numel(), init.shape[0]
        if not 1 <= k <= min(fan_in, out):
            raise ValueError(f"`k` must be between 1 and min(fan_in, out)={min(fan_in, out)}, got {k}")
        if not scale > 0:
            raise ValueError(f"`scale` must be positive, got {scale}: pass e.g. 0.01")
        super().__init__()
        self.k = k
        self.loc = nn.Parameter(init.detach().clone())
        # The product of the two factors, summed over k terms, is `scale` (paper, section 4.2).
        like = {"dtype": torch.promote_types(init.dtype, torch.float32), "device": init.device}
        start = 0.5 * (math.log(scale) - math.log(k))
        self.log_in = nn.Parameter(start + jitter * torch.randn(fan_in, k, **like))
        self.log_out = nn.Parameter(start + jitter * torch.randn(out, k, **like))

    def mean(self) -> Tensor:
        """The parameter `loc`."""
        return self.loc

    def scale(self) -> Tensor:
        """The standard deviations, in the shape of the weight."""
        u, v = full(self.log_in).exp(), full(self.log_out).exp()
        return kernels.outer_products(v, u).view(self.loc.shape)

    def variance(self) -> Tensor:
        """`scale^2`."""
        return self.scale().square()

    def log_std(self) -> Tensor:
        """`ln scale`."""
        return self.scale().log()

    def rsample(self) -> Tensor:
        """`loc + scale * noise`."""
        return kernels.draw_weight(self)

    def facts(self) -> Facts:
        """Mean, standard deviation and its factors."""
        return Facts(self.loc, std=self.scale, factors=(self.log_in, self.log_out))

    def config(self) -> dict[str, float | int | None]:
        """The rank; the factors themselves are parameters."""
        return {"k": self.k}

    def output_variance(self, op: Op, x: Tensor) -> Tensor:
        """The variance of `op(x, W)` through the `k (k + 1) / 2` pairs of factors."""
        pairs = self.k * (self.k + 1) // 2
        if pairs >= self.loc.shape[0] or not op.numeric_input:
            return super().output_variance(op, x)
        first, second = torch.triu_indices(self.k, self.k, device=self.loc.device)
        log_in, log_out = full(self.log_in), full(self.log_out)
        basis = (log_in[:, first] + log_in[:, second]).exp().T.reshape(pairs, *self.loc.shape[1:])
        coefficients = (log_out[:, first] + log_out[:, second]).exp()
        coefficients = coefficients * (2 - (first == second).to(log_out.dtype))  # (r,s) and (s,r)
        dtype = product_type(x, self.loc)
        return op.mix(op.features(op.squared(x), basis.to(dtype)), coefficients.to(dtype))
