"""The matrix-variate Normal posterior: correlated rows and columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bayeslim.kernels import normal_like
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, full, product_type

__all__ = ["MatrixNormal"]


class MatrixNormal(Posterior):
    r"""`W = M + L_out Z L_in^T` with `Z` standard normal: covariance `A_in (x) B_out`.

    `A = L_in L_in^T` (fan_in x fan_in) couples inputs, `B = L_out L_out^T` (out x out) couples
    outputs; `Cov[W_ji, W_lk] = B_jl A_ik` (Louizos and Welling 2016). Convolution kernels are
    flattened to (out, fan_in). With diagonal factors this is `KTied(k=1)`.

    The factors are lower triangular; their diagonals are stored as logs.

    Args:
        init: the initial weight; becomes the mean.
        scale: initial standard deviation of every weight, without correlation.

    Example:
        >>> q = MatrixNormal(torch.zeros(3, 2), scale=0.1)
        >>> q.total_correlation().item()
        0.0
    """

    factorised = False
    scale_parameters = ("in_factor", "out_factor")

    def __init__(self, init: Tensor, scale: float = 0.01) -> None:
        if init.ndim < 2:
            raise ValueError(
                f"`init` must have at least 2 axes, got shape {tuple(init.shape)}: a vector has no "
                "row and column covariance, use MeanField for biases"
            )
        if not scale > 0:
            raise ValueError(f"`scale` must be positive, got {scale}: pass e.g. 0.01")
        super().__init__()
        fan_in, out = init[0].numel(), init.shape[0]
        self.loc = nn.Parameter(init.detach().clone())
        log_diagonal = 0.5 * math.log(scale)
        self.in_factor = nn.Parameter(full(self.loc).new_full((fan_in,), log_diagonal).diag())
        self.out_factor = nn.Parameter(full(self.loc).new_full((out,), log_diagonal).diag())

    def mean(self) -> Tensor:
        """The parameter `loc`."""
        return self.loc

    def variance(self) -> Tensor:
        """`B_jj A_ii`, in the shape of the weight."""
        return torch.outer(self._out_variance(), self._in_variance()).view(self.loc.shape)

    def log_std(self) -> Tensor:
        """`0.5 (ln B_jj + ln A_ii)`, which no product can overflow."""
        total = self._out_variance().log()[:, None] + self._in_variance().log()
        return 0.5 * total.view(self.loc.shape)

    def rsample(self) -> Tensor:
        """`M + L_out Z L_in^T`."""
        noise = normal_like(self.loc).flatten(1)
        out_factor, in_factor = (cholesky(raw).to(noise.dtype) for raw in (self.out_factor, self.in_factor))
        deviation = out_factor @ noise @ in_factor.T
        return self.loc + deviation.view(self.loc.shape)

    def config(self) -> dict[str, float | int | None]:
        """Nothing: the shape of `init` says it all."""
        return {}

    def total_correlation(self) -> Tensor:
        r"""`sum_ij ln sd_ij - (fan_in ln|L_out| + out ln|L_in|)`."""
        # The logs of whole rows nearly cancel: 16 bits would be off by nats, not by digits.
        in_gap, out_gap = (
            0.5 * cholesky(factor).square().sum(1).log().sum() - full(factor.diagonal()).sum()
            for factor in (self.in_factor, self.out_factor)
        )
        return self.out_factor.shape[0] * in_gap + self.in_factor.shape[0] * out_gap

    def output_variance(self, op: Op, x: Tensor) -> Tensor:
        """`B_jj x^T A x`: the squared norm of `L_in^T x`, scaled per output."""
        if not op.numeric_input:
            return super().output_variance(op, x)
        dtype = product_type(x, self.loc)
        basis = cholesky(self.in_factor).T.reshape(-1, *self.loc.shape[1:])
        coefficients = self._out_variance()[:, None].expand(-1, basis.shape[0])
        return op.mix(op.features(x, basis.to(dtype)).square(), coefficients.to(dtype))

    def _in_variance(self) -> Tensor:
        return cholesky(self.in_factor).square().sum(1)

    def _out_variance(self) -> Tensor:
        return cholesky(self.out_factor).square().sum(1)


def cholesky(raw: Tensor) -> Tensor:
    """Lower-triangular factor with the diagonal `exp(diag(raw))`, float32 at least; the upper triangle is ignored."""
    raw = full(raw)
    return raw.tril(-1) + raw.diagonal().exp().diag()
