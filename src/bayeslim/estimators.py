"""How a layer uses its posterior in a forward pass: one small class each, for every op."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, Self

import torch
from torch import Tensor

from bayeslim import kernels
from bayeslim.gaussian import Gaussian, Mode
from bayeslim.kernels.precision import product_type, wide, without_float16
from bayeslim.kernels.reference import VARIANCE_FLOOR
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import Posterior

__all__ = [
    "Bias",
    "Estimator",
    "bias_mean",
    "bias_sample",
    "check_estimator",
    "check_function",
    "clipped_reparam",
    "flipout",
    "independent_draws",
    "kind_of",
    "local_reparam",
    "mean_only",
    "moments",
    "taylor_moments",
    "to_predict_by",
    "weight_sample",
    "without_float16",
]

Bias = Tensor | Posterior | None

LEFT_OUT, MOST_NOISE = 3.0, 8.0
"""ln alpha from which `clipped_reparam` leaves a mean out, and where it cuts variances."""

Kind = Literal["mean", "weights", "outputs", "moments"]


@dataclass(frozen=True)
class Estimator:
    """How a layer uses its posterior: called as `(posterior, op, x, bias) -> output`.

    Members are small frozen classes that state facts; nothing asks which member it has. The bias is a tensor (a point
    estimate), a posterior of its own, or None.
    """

    kind: ClassVar[Kind]
    """What is used: the mean alone, drawn weights, drawn outputs, or moments that are passed on."""
    joint: ClassVar[bool] = False
    """Whether outputs of one pass have the joint distribution over examples and positions that one network gives."""
    needs_factorised: ClassVar[str] = ""
    """Why it is for independent weights only; empty if it is not."""
    needs_numbers: ClassVar[str] = ""
    """What inputs need besides being indices; empty if nothing."""

    def __call__(self, posterior: Posterior, op: Op, x: Any, bias: Bias) -> Any:
        """The output of the layer."""
        raise NotImplementedError(f"{type(self).__name__} must define `__call__(posterior, op, x, bias)`")

    @property
    def __name__(self) -> str:
        """The name under which a network's description stores it."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__qualname__.rpartition(".")[2]).lower()

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a value: the copy of a network has the very same one


class MeanOnly(Estimator):
    """Use the posterior mean: a deterministic network."""

    kind = "mean"
    joint = True

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """`op(x, mean, bias)`."""
        return op(x, posterior.mean(), bias_mean(bias))


class WeightSample(Estimator):
    """Draw one weight for the whole batch (Graves 2011, Blundell et al. 2015).

    Every draw is a network: outputs have the right joint distribution over examples, positions and
    tokens, at the price of noisier gradients than `local_reparam`.
    """

    kind = "weights"
    joint = True

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """`op(x, W, bias)`."""
        return kernels.draw_by_weight(posterior, op, x, bias.rsample() if isinstance(bias, Posterior) else bias)


class LocalReparam(Estimator):
    r"""Draw the output instead of the weight (Kingma et al. 2015, section 2.3).

    `y = op(x, mean) + sqrt(Var[op(x, W)]) * noise`, with independent noise per output element: the
    marginals are exact and gradients have low variance. Between positions of a convolution or
    tokens of a sequence the correlation is lost, so pooled outputs look far too certain: right for
    training, not for prediction there (see `independent_draws`).
    """

    kind = "outputs"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """`y` as above."""
        if isinstance(x, Gaussian):
            _refuse_uncertain()
        if isinstance(bias, Posterior):
            return _drawn(*_output_moments(posterior, op, x, bias))
        return kernels.draw_by_output(posterior, op, x, bias)


class ClippedReparam(Estimator):
    r"""`local_reparam` without what pruning will remove, as the official code of Sparse VD trains.

    Means of weights with `ln alpha = ln(variance / mean^2) >= 3` count as 0, and variances as at most `e^8 mean^2`. The
    others learn to do without them, so that pruning at 3 changes nothing but noise. The KL is that of the posterior as
    it is.
    """

    kind = "outputs"
    needs_factorised = "it judges every weight by its own variance"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """A draw of every output."""
        check_estimator(self, posterior, op)
        if isinstance(x, Gaussian):
            _refuse_uncertain()
        mean, variance = posterior.mean(), posterior.variance()
        square = mean.to(variance.dtype).square()
        left = mean.masked_fill(variance >= math.exp(LEFT_OUT) * square, 0)
        with without_float16(x.device.type):
            x_wide, clipped = wide(x), torch.minimum(variance, math.exp(MOST_NOISE) * square)
            spread = op(op.squared(x_wide), clipped.to(product_type(x, mean)))
        return _drawn(op(x, left, bias_mean(bias)), _with_bias_variance(spread, op, bias))


class Flipout(Estimator):
    r"""Decorrelate one weight draw over the batch by random signs (Wen et al. 2018).

    `y = op(x, mean) + s * op(r * x, W - mean)` with signs `r` per example and input channel and `s`
    per example and output channel. Valid only for a factorised, symmetric posterior.
    """

    kind = "outputs"
    needs_factorised = "random signs would destroy its correlations"
    needs_numbers = "inputs with a sign"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """`y` as above."""
        check_estimator(self, posterior, op)
        mean, mean_bias = posterior.mean(), bias_mean(bias)
        with torch.autocast(x.device.type, enabled=False):  # a small difference of weights rounded to 16 bits is lost
            noise = posterior.rsample() - mean
            noise_bias = bias.rsample() - bias.mean() if isinstance(bias, Posterior) else None
        output = op(x, mean, mean_bias)
        perturbation = op(x * op.random_signs(x), noise, noise_bias)
        return output + perturbation * op.random_signs(output)


class Moments(Estimator):
    r"""Propagate mean and variance in closed form instead of sampling (VDP++, eq. 6-7).

    For inputs of mean `m` and variance `v`, independent of each other and of the weights:
    `mean = op(m, W)`, `variance = Var_W[op(m, W)] + op(v, W^2 + Var[W])`. Exact for one layer.
    What follows uses exact moments of its functions; a Gaussian input brings its own mode along.
    """

    kind = "moments"
    mode: ClassVar[Mode] = "exact"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor | Gaussian, bias: Bias) -> Gaussian:
        """Mean and variance of the outputs."""
        if not isinstance(x, Gaussian):
            return Gaussian.of(*_output_moments(posterior, op, x, bias), self.mode)
        if not op.is_product and op.repeats_inputs(x.shape, posterior.shape):
            raise TypeError(
                "moments of an uncertain input need padding_mode='zeros', or 'circular' with a kernel shorter than the "
                "axis: other borders repeat inputs, whose correlation would be lost"
            )
        mean, variance = kernels.propagate(posterior, op, x.loc, x.variance, bias_mean(bias))
        residual = (x, lambda: op.diagonal(posterior.mean())) if mean.shape == x.shape else None
        return Gaussian.of(mean, _with_bias_variance(variance, op, bias), x.mode, residual)


class TaylorMoments(Moments):
    """Propagate moments with nonlinear functions expanded to first order at the mean, as the VDP++ paper has it."""

    mode = "taylor"


class IndependentDraws(Estimator):
    """Draw outputs whose joint distribution over positions is right; what `predict` uses.

    One vector per example has no positions to correlate: there local reparameterisation is exact
    for every example and cheaper, if the weights of different outputs are independent. Everything else samples the
    weight.
    """

    kind = "outputs"

    def __call__(self, posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
        """A draw of the outputs."""
        vectors = isinstance(op, LinearOp) and op.numeric_input and x.ndim <= 2
        return (local_reparam if vectors and posterior.factorised else weight_sample)(posterior, op, x, bias)


mean_only = MeanOnly()
weight_sample = WeightSample()
local_reparam = LocalReparam()
clipped_reparam = ClippedReparam()
flipout = Flipout()
moments = Moments()
taylor_moments = TaylorMoments()
independent_draws = IndependentDraws()


def check_function(estimator: object) -> None:
    """Raise TypeError for what is no function, such as the name of one."""
    if callable(estimator):
        return
    top = (mean_only, weight_sample, local_reparam, flipout, moments, taylor_moments)
    meant = [f"bl.{function.__name__}" for function in top if function.__name__ == estimator]
    if estimator == "clipped_reparam":
        meant = ["bayeslim.estimators.clipped_reparam"]
    advice = f"{meant[0]}, the function itself" if meant else "bl.local_reparam"
    raise TypeError(f"`estimator` must be a function, got {estimator!r}: pass e.g. {advice}")


def check_estimator(estimator: Callable[..., object], posterior: Posterior, op: Op) -> None:
    """Raise TypeError for a combination that would be biased or meaningless."""
    reason, wanted = getattr(estimator, "needs_factorised", ""), getattr(estimator, "needs_numbers", "")
    if reason and not posterior.factorised:
        refusal = f"a factorised posterior, got {type(posterior).__name__} ({reason})"
    elif wanted and not op.numeric_input:
        refusal = f"{wanted}, {type(op).__name__} takes indices"
    else:
        return
    name = getattr(estimator, "__name__", repr(estimator))
    raise TypeError(f"{name} needs {refusal}: use weight_sample or local_reparam")


def to_predict_by(estimator: Callable[..., Any]) -> Callable[..., Any]:
    """What draws the samples of a prediction in the place of an estimator: what says that it is not joint gives way."""
    stays = kind_of(estimator) in (None, "mean") or getattr(estimator, "joint", False)
    return estimator if stays else independent_draws


def kind_of(estimator: object) -> Kind | None:
    """What an estimator uses; None for a plain function, which states no facts."""
    return getattr(estimator, "kind", None)


def bias_mean(bias: Bias) -> Tensor | None:
    """The mean of a bias of any kind."""
    return bias.mean() if isinstance(bias, Posterior) else bias


def bias_sample(bias: Bias) -> Tensor | None:
    """A draw of a bias, or the point estimate."""
    return bias.rsample() if isinstance(bias, Posterior) else bias


def _refuse_uncertain() -> NoReturn:
    raise TypeError(
        "outputs of an uncertain input cannot be drawn: propagate their moments (bl.moments) or draw weights "
        "(bl.weight_sample)"
    )


def _drawn(mean: Tensor, variance: Tensor) -> Tensor:
    """A draw of every output on its own."""
    return torch.addcmul(mean, (variance + VARIANCE_FLOOR).sqrt().to(mean.dtype), kernels.normal_like(mean))


def _output_moments(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W) + b`; the latter in float32 where float16 would underflow."""
    mean, variance = kernels.output_moments(posterior, op, x, bias_mean(bias))
    return mean, _with_bias_variance(variance, op, bias)


def _with_bias_variance(variance: Tensor, op: Op, bias: Bias) -> Tensor:
    if not isinstance(bias, Posterior):
        return variance
    return variance + op.per_channel(bias.variance().to(wide(bias.mean()).dtype))
