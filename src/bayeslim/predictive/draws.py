"""What stands in for a layer's estimator while networks are predicted: weights, or outputs drawn in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim import kernels
from bayeslim.estimators import Bias, moments
from bayeslim.kernels.context import inside
from bayeslim.kernels.onednn import LARGE, product_by_onednn
from bayeslim.kernels.reference import VARIANCE_FLOOR
from bayeslim.layers.base import BayesLayer
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import Posterior
from bayeslim.predictive.passes import over_samples

__all__ = ["JointOutputs", "SeparateOutputs", "Unplanned", "Weights", "pays"]

DEPENDENT = 1e-12
"""What is left of a variance, if it is this share of it, is rounding: the output follows from those before it."""
NUMBERS_AT_ONCE = 2**22
"""The most products of inputs, or covariances, of a layer (32 MiB in float64)."""


class Unplanned(BaseException):
    """A network took another way than in the pass by which it was planned; no `except Exception` of its own ends it."""


class Weights(dict[Posterior, Tensor]):
    """The weights of the network that runs, by posterior; who asks for another gets `Unplanned`.

    Args:
        posteriors: which are drawn before a network runs.
        several: whether networks run side by side; then a product is one per network, which torch does best.
    """

    def __init__(self, posteriors: Iterable[Posterior], several: bool) -> None:
        super().__init__()
        self.several = several
        self.sources: list[tuple[Posterior, Tensor, Tensor | Callable[[], Tensor]]] = []
        for posterior in posteriors:
            if posterior.factorised:
                mean, std = _mean_and_std(posterior)
                self.sources.append((posterior, mean, std.to(mean.dtype)))
            else:
                self.sources.append((posterior, posterior.mean(), posterior.rsample))

    def draw(self, count: int) -> list[Tensor]:
        """Weights for so many networks, these first."""
        drawn: list[Tensor] = []
        for _, mean, std in self.sources:
            if isinstance(std, Tensor):
                noise = kernels.normals((count, *mean.shape), mean)
                drawn.append(torch.addcmul(mean, std, noise, out=noise))
            else:
                sample = std  # of a posterior that is not factorised
                drawn.append(over_samples(lambda _: sample(), torch.empty(count, device=mean.device)))  # noqa: B023
        return drawn

    def hold(self, drawn: Iterable[Tensor]) -> None:
        """Let these be the weights of the network that runs."""
        for (posterior, _, _), weight in zip(self.sources, drawn, strict=True):
            self[posterior] = weight

    def __missing__(self, posterior: Posterior) -> Tensor:
        """Raise: nothing was drawn for it."""
        raise Unplanned

    def estimate(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """Stand in for an estimator that draws weights."""
        product = F.linear if self.several and type(op) is LinearOp else op
        return product(x, self[posterior], self[bias] if isinstance(bias, Posterior) else bias)


def _mean_and_std(posterior: Posterior) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the weights, the latter in float32 at least."""
    facts = posterior.facts()
    if facts.log_std is not None:
        std = facts.log_std().exp()
    elif facts.std is not None:
        std = facts.std()
    else:
        return posterior.mean(), posterior.variance().sqrt()
    return (facts.loc, std) if facts.mask is None else (facts.loc * facts.mask, std.masked_fill(facts.mask == 0, 0))


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`F.linear`, a large one by the library that is faster on this processor.

    Inside `torch.vmap`, where only `x` differs between networks, their rows are those of one product.
    """
    batched = inside.is_batchedtensor(x)
    whole = inside.get_unwrapped(x).movedim(inside.maybe_get_bdim(x), 0) if batched else x
    if whole.numel() * len(weight) < LARGE:
        return F.linear(x, weight, bias)
    if not batched or not whole.is_cpu or inside.is_batchedtensor(whole):
        return kernels.linear(x, weight, bias)
    output = product_by_onednn(whole.flatten(0, -2), weight, bias).unflatten(0, whole.shape[:-1])
    return inside._add_batch_dim(output, 0, inside.maybe_get_level(x))


class _Outputs:
    """Stands in for the estimator of a linear layer: its outputs are drawn, and its weight is not."""

    def __init__(self, layer: BayesLayer) -> None:
        self.weight, std = _mean_and_std(layer.weight)
        self.variance, bias = std.square(), layer.bias
        self.bias, bias_std = _mean_and_std(bias) if isinstance(bias, Posterior) else (bias, None)
        self.bias_variance = None if bias_std is None else bias_std.square()
        self.noise = self.weight
        self.used = False

    def hold(self, noise: Tensor) -> None:
        """Let these be the normal numbers of the network that runs, for one use of the layer."""
        self.noise, self.used = noise, False

    def use(self, fits: bool) -> None:
        """Note that the layer is used, which the plan knows about once and for such inputs."""
        if self.used or not fits:
            raise Unplanned
        self.used = True


class SeparateOutputs(_Outputs):
    """Draws every output on its own: `y = op(x, mean) + sqrt(Var[op(x, W)]) noise`, for one vector per example.

    Args:
        layer: linear, with a factorised posterior.
    """

    def __init__(self, layer: BayesLayer) -> None:
        super().__init__(layer)
        kind, dtype = self.weight.device.type, self.weight.dtype
        facts = layer.weight.facts()  # scales of low rank need fewer products
        known = not facts.unknown and facts.factors is None and type(layer.op) is LinearOp
        self.plain = known and dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(kind)
        self.least = self.variance.new_full((len(self.variance),), VARIANCE_FLOOR)
        if self.bias_variance is not None:
            self.least += self.bias_variance

    def draw(self, count: int, examples: int) -> Tensor:
        """Normal numbers for the networks and examples of a pass, these first."""
        return kernels.normals((count, examples, len(self.weight)), self.weight)

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """Stand in for the estimator."""
        if self.plain:
            mean = _product(x, self.weight, self.bias)
            std = _product(x.square(), self.variance, self.least).sqrt_()
        else:
            found = moments(posterior, op, x, bias)
            mean, std = found.loc, (found.variance + VARIANCE_FLOOR).sqrt().to(found.loc.dtype)
        self.use(x.ndim <= 2 and mean.numel() == self.noise.numel())
        return torch.addcmul(mean, std, self.noise.to(mean.dtype).view(mean.shape))


class JointOutputs(_Outputs):
    r"""Draws the outputs for all inputs of a pass jointly, as one weight would give them.

    Under a factorised posterior every output `o` is Gaussian and independent of the others, with
    `Cov[y_io, y_jo] = sum_k x_ik x_jk Var[W_ok] + Var[b_o]` for inputs `i` and `j`. A factor `F_o F_o^T` of this matrix
    gives `y_o = mean_o + F_o noise`: `N` normal numbers per output and network, where a draw of weights takes one per
    input feature. For `N = 1` this is local reparameterisation. Inputs that all networks share have their mean and
    factors computed once.

    Args:
        layer: linear, with a factorised posterior.
        rows: the number `N` of inputs.

    Example:
        >>> layer = bl.layers.Linear(3, 2)
        >>> outputs = JointOutputs(layer, 5)
        >>> outputs.hold(outputs.draw(1)[0])
        >>> outputs(layer.weight, layer.op, torch.zeros(5, 3), layer.bias).shape
        torch.Size([5, 2])
    """

    def __init__(self, layer: BayesLayer, rows: int) -> None:
        super().__init__(layer)
        self.rows = rows
        self.x = self.mean = self.factors = self.weight.new_empty(0)

    def draw(self, count: int, examples: int = 0) -> Tensor:
        """Normal numbers for the networks of a pass, these first; in memory outputs first, as they are multiplied."""
        return kernels.normals((len(self.weight), count, self.rows), self.variance).movedim(1, 0)

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """Stand in for the estimator."""
        self.use(x.shape[:-1].numel() == self.rows)
        shared = not inside.is_batchedtensor(x)
        if not (shared and x.shape == self.x.shape and torch.equal(x, self.x)):
            self.mean = F.linear(x, self.weight, self.bias)
            with torch.autocast(x.device.type, enabled=False):
                covariance = _covariance(x.reshape(self.rows, -1), self.variance, self.bias_variance)
                self.factors = _factors_(covariance, self.variance.dtype)
            self.x = x if shared else self.weight[:0]
        with torch.autocast(x.device.type, enabled=False):
            drawn = _products(self.factors, self.noise)
        return (self.mean + drawn.mT.reshape(self.mean.shape)).to(self.mean.dtype)


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


def _covariance(x: Tensor, weight_variance: Tensor, bias_variance: Tensor | None) -> Tensor:
    """Covariances between inputs, for every output: (N, N, out), zero above the diagonal.

    In float64: inputs that are close have outputs whose difference is far smaller than they are.
    """
    x = x.to(weight_variance.dtype) if len(x) == 1 else x.double()
    products = torch.cat([row * x[i:] for i, row in enumerate(x)])
    covariance = products @ weight_variance.to(x.dtype).T
    if bias_variance is not None:
        covariance = covariance + bias_variance.to(x.dtype)
    columns = covariance.split(list(range(len(x), 0, -1)))
    return torch.stack([F.pad(column, (0, 0, i, 0)) for i, column in enumerate(columns)], 1)


def _factors_(covariance: Tensor, dtype: torch.dtype) -> Tensor:
    """Cholesky factors (out, N, N) of covariances (N, N, out) that may be singular, which are overwritten.

    An output that follows from those before it, as that of an equal input or one without variance, has no noise of its
    own.
    """
    rest, least = covariance, DEPENDENT * covariance.diagonal().T
    batched = inside.is_batchedtensor(covariance)  # torch.vmap would loop over the faster function
    for i in range(len(covariance)):
        column = rest[:, 0]
        column.copy_(torch.where(column[:1] > least[i], column * column[:1].rsqrt(), 0))
        rest = rest[1:, 1:]
        if batched:
            rest.sub_(column[1:, None] * column[1:])
        else:
            rest.addcmul_(column[1:, None], column[1:], value=-1)
    return covariance.to(dtype).permute(2, 0, 1).tril()


def _products(factors: Tensor, noise: Tensor) -> Tensor:
    """`F_o noise_o` for every output, (out, N), of factors (out, N, N) and noise (out, N).

    Where all networks share the factors, this is one product for all of them.
    """
    if inside.is_batchedtensor(factors) or not inside.is_batchedtensor(noise):
        return (factors @ noise[..., None])[..., 0]
    whole = inside.get_unwrapped(noise).movedim(inside.maybe_get_bdim(noise), 1)
    return inside._add_batch_dim(torch.bmm(whole, factors.mT), 1, inside.maybe_get_level(noise))
