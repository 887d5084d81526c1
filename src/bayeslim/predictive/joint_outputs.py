"""Outputs of a linear layer drawn in place of its weights, with the same joint distribution over all inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.estimators import Bias, bias_mean
from bayeslim.kernels.context import transforms
from bayeslim.kernels.noise import normals
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, wide

__all__ = ["JointOutputs", "draw_jointly", "pays"]

DEPENDENT = 1e-12
"""What is left of a variance, if it is this share of it, is rounding: the output follows from those before it."""
NUMBERS_AT_ONCE = 2**22
"""The most products of inputs, or covariances, of a layer (32 MiB in float64)."""


class JointOutputs:
    r"""The outputs of a linear layer for `N` given inputs, drawn jointly.

    Under a factorised posterior every output `o` is Gaussian and independent of the others, with
    `Cov[y_io, y_jo] = sum_k x_ik x_jk Var[W_ok] + Var[b_o]` for inputs `i` and `j`. A factor `F_o F_o^T` of this matrix
    gives `y_o = mean_o + F_o noise`: `N` normal numbers per output and network, where a draw of weights takes one per
    input feature. For `N = 1` this is local reparameterisation. Means and factors are computed once.

    Args:
        posterior: of the weight (out, in); factorised.
        op: the linear map.
        x: inputs (..., in), `N` in all.
        bias: point estimate, posterior or None.

    Example:
        >>> layer = bl.layers.Linear(3, 2)
        >>> JointOutputs(layer.weight, layer.op, torch.zeros(5, 3), layer.bias).draw(200).shape
        torch.Size([200, 5, 2])
    """

    def __init__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> None:
        self.mean = op(x, posterior.mean(), bias_mean(bias))
        with torch.autocast(x.device.type, enabled=False):
            covariance = _covariance(posterior, x.reshape(-1, x.shape[-1]), bias)
            self.factors = _factors_(covariance, wide(self.mean).dtype)

    def draw(self, count: int) -> Tensor:
        """The outputs of `count` networks, (count, ..., out)."""
        outputs, rows, _ = self.factors.shape
        with torch.autocast(self.factors.device.type, enabled=False):
            noise = normals((outputs, count, rows), self.factors)  # in this order nothing is copied
            drawn = torch.bmm(noise, self.factors.mT)
            drawn += self.mean.to(drawn.dtype).reshape(rows, outputs).T[:, None]
        return drawn.permute(1, 2, 0).reshape(count, *self.mean.shape).to(self.mean.dtype)


def draw_jointly(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    """An estimator with the distribution of `weight_sample`, for linear layers with a factorised posterior."""
    return JointOutputs(posterior, op, x, bias).draw(1)[0]


def pays(rows: int, columns: int, outputs: int, networks: int) -> bool:
    """Whether drawing outputs is faster than drawing weights, counted per output in weights (2.5 ns each on a CPU).

    Args:
        rows: inputs of the layer.
        columns: features of an input.
        outputs: features of an output.
        networks: how many share the inputs, and with them the factors.

    Example:
        >>> pays(32, 784, 300, networks=200), pays(4, 300, 100, networks=1), pays(8, 300, 100, networks=1)
        (True, True, False)
    """
    if networks > 1:  # products of inputs, and steps of the factorisation
        factors = rows**2 * (columns / 120 + rows / 6)
    else:  # the same for many small matrices side by side, whose products of inputs are not shared
        factors = rows**2 * (5 + columns / 130 + 1.5 * columns / outputs)
    fits = rows**2 * max(columns, outputs) <= NUMBERS_AT_ONCE
    return fits and 0 < networks * rows + factors < networks * columns


def _covariance(posterior: Posterior, x: Tensor, bias: Bias) -> Tensor:
    """Covariances between inputs, for every output: (N, N, out), zero above the diagonal.

    In float64: inputs that are close have outputs whose difference is far smaller than they are.
    """
    x = wide(x) if len(x) == 1 else x.double()
    products = torch.cat([row * x[i:] for i, row in enumerate(x)])
    covariance = products @ posterior.variance().to(x.dtype).T
    if isinstance(bias, Posterior):
        covariance = covariance + bias.variance().to(x.dtype)
    columns = covariance.split(list(range(len(x), 0, -1)))
    return torch.stack([F.pad(column, (0, 0, i, 0)) for i, column in enumerate(columns)], 1)


def _factors_(covariance: Tensor, dtype: torch.dtype) -> Tensor:
    """Cholesky factors (out, N, N) of covariances (N, N, out) that may be singular, which are overwritten.

    An output that follows from those before it, as that of an equal input or one without variance, has no noise of its
    own.
    """
    rest, least = covariance, DEPENDENT * covariance.diagonal().T
    batched = bool(transforms())  # torch.vmap would loop over the faster function
    for i in range(len(covariance)):
        column = rest[:, 0]
        column.copy_(torch.where(column[:1] > least[i], column * column[:1].rsqrt(), 0))
        rest = rest[1:, 1:]
        if batched:
            rest.sub_(column[1:, None] * column[1:])
        else:
            rest.addcmul_(column[1:, None], column[1:], value=-1)
    return covariance.to(dtype).permute(2, 0, 1).tril()
