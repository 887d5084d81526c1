"""How a layer uses its posterior in a forward pass: one function each, for every op.

An estimator is `(posterior, op, x, bias) -> output`. The bias is a tensor (a point estimate), a
posterior of its own, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from bayeslim.gaussian import VARIANCE_FLOOR, Gaussian, Mode
from bayeslim.noise import normal_like
from bayeslim.ops import LinearOp, Op
from bayeslim.posteriors.base import Posterior, product_type, typed_as, wide

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
    "local_reparam",
    "mean_only",
    "moments",
    "taylor_moments",
    "weight_sample",
    "without_float16",
]

Bias = Tensor | Posterior | None
Estimator = Callable[[Posterior, Op, Tensor, Bias], Tensor]

LEFT_OUT, MOST_NOISE = 3.0, 8.0
"""ln alpha from which `clipped_reparam` leaves a mean out, and where it cuts variances."""


def mean_only(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    """Use the posterior mean: a deterministic network."""
    return op(x, posterior.mean(), bias_mean(bias))


def weight_sample(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    """Draw one weight for the whole batch (Graves 2011, Blundell et al. 2015).

    Every draw is a network: outputs have the right joint distribution over examples, positions and
    tokens, at the price of noisier gradients than `local_reparam`.
    """
    joined = None if isinstance(bias, Posterior) else posterior.drawn_output(op, x, bias)
    return op(x, posterior.rsample(), bias_sample(bias)) if joined is None else joined


def local_reparam(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    r"""Draw the output instead of the weight (Kingma et al. 2015, section 2.3).

    `y = op(x, mean) + sqrt(Var[op(x, W)]) * noise`, with independent noise per output element: the
    marginals are exact and gradients have low variance. Between positions of a convolution or
    tokens of a sequence the correlation is lost, so pooled outputs look far too certain: right for
    training, not for prediction there (see `independent_draws`).
    """
    joined = None if isinstance(bias, Posterior) else posterior.locally_drawn_output(op, x, bias)
    if joined is not None:
        return joined
    return _drawn(*_output_moments(posterior, op, x, bias))


def clipped_reparam(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    r"""`local_reparam` without what pruning will remove, as the official code of Sparse VD trains.

    Means of weights with `ln alpha = ln(variance / mean^2) >= 3` count as 0, and variances as at most `e^8 mean^2`. The
    others learn to do without them, so that pruning at 3 changes nothing but noise. Needs a factorised posterior. The
    KL is that of the posterior as it is.
    """
    check_estimator(clipped_reparam, posterior, op)
    mean, variance = posterior.mean(), posterior.variance()
    square = mean.to(variance.dtype).square()
    left = mean.masked_fill(variance >= math.exp(LEFT_OUT) * square, 0)
    clipped = torch.minimum(variance, math.exp(MOST_NOISE) * square)
    with without_float16(x.device.type):
        spread = op(op.squared(wide(x)), clipped.to(product_type(x, mean)))
    return _drawn(op(x, left, bias_mean(bias)), _with_bias_variance(spread, op, bias))


def flipout(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    r"""Decorrelate one weight draw over the batch by random signs (Wen et al. 2018).

    `y = op(x, mean) + s * op(r * x, W - mean)` with signs `r` per example and input channel and `s`
    per example and output channel. Valid only for a factorised, symmetric posterior.
    """
    check_estimator(flipout, posterior, op)
    mean, mean_bias = posterior.mean(), bias_mean(bias)
    with torch.autocast(x.device.type, enabled=False):  # a small difference of weights rounded to 16 bits is lost
        noise = posterior.rsample() - mean
        noise_bias = bias.rsample() - bias.mean() if isinstance(bias, Posterior) else None
    output = op(x, mean, mean_bias)
    perturbation = op(x * op.random_signs(x), noise, noise_bias)
    return output + perturbation * op.random_signs(output)


def moments(posterior: Posterior, op: Op, x: Tensor | Gaussian, bias: Bias) -> Gaussian:
    r"""Propagate mean and variance in closed form instead of sampling (VDP++, eq. 6-7).

    For inputs of mean `m` and variance `v`, independent of each other and of the weights:
    `mean = op(m, W)`, `variance = Var_W[op(m, W)] + op(v, W^2 + Var[W])`. Exact for one layer.
    What follows uses exact moments of its functions; a Gaussian input brings its own mode along.
    """
    return _moments(posterior, op, x, bias, "exact")


def taylor_moments(posterior: Posterior, op: Op, x: Tensor | Gaussian, bias: Bias) -> Gaussian:
    """As `moments`, with nonlinear functions expanded to first order at the mean, as the VDP++ paper has it."""
    return _moments(posterior, op, x, bias, "taylor")


def _moments(posterior: Posterior, op: Op, x: Tensor | Gaussian, bias: Bias, mode: Mode) -> Gaussian:
    if not isinstance(x, Gaussian):
        return Gaussian.of(*_output_moments(posterior, op, x, bias), mode)
    inputs = x.loc, x.variance, bias_mean(bias)
    mean, variance = posterior.propagated(op, *inputs) or _propagated(posterior, op, *inputs)
    variance = _with_bias_variance(variance, op, bias)
    residual = (x, lambda: op.diagonal(posterior.mean())) if mean.shape == x.shape else None
    return Gaussian.of(mean, variance, x.mode, residual)


def _propagated(
    posterior: Posterior, op: Op, mean_in: Tensor, spread: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Mean and variance of outputs for inputs with a variance of their own."""
    weight = posterior.mean()
    mean = op(typed_as(weight, mean_in), weight, bias)
    if op.repeats_inputs(mean_in.shape, weight.shape):
        raise TypeError(
            "moments of an uncertain input need padding_mode='zeros', or 'circular' with a kernel shorter than the "
            "axis: other borders repeat inputs, whose correlation would be lost"
        )
    with without_float16(mean_in.device.type):
        mean_in, spread = wide(mean_in), wide(spread)
        weight_variance = posterior.variance().to(spread.dtype)
        second_moment = wide(weight).square() + weight_variance
        if posterior.factorised and op.groups == 1:  # two products as one, of twice the channels: faster, same sum
            channel = op.channel_axis
            inputs = torch.cat([op.squared(mean_in), spread], channel)
            return mean, op(inputs, torch.cat([weight_variance, second_moment], 1))
        return mean, posterior.output_variance(op, mean_in) + op(spread, second_moment)


def independent_draws(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> Tensor:
    """Draw outputs whose joint distribution over positions is right; what `predict` uses.

    One vector per example has no positions to correlate: there local reparameterisation is exact
    for every example and cheaper, if the weights of different outputs are independent. Everything else samples the
    weight.
    """
    vectors = isinstance(op, LinearOp) and op.numeric_input and x.ndim <= 2
    estimator = local_reparam if vectors and posterior.factorised else weight_sample
    return estimator(posterior, op, x, bias)


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
    if estimator is flipout and not posterior.factorised:
        raise TypeError(
            f"flipout needs a factorised posterior, got {type(posterior).__name__} (random signs "
            "would destroy its correlations): use weight_sample or local_reparam"
        )
    if estimator is clipped_reparam and not posterior.factorised:
        raise TypeError(
            f"clipped_reparam needs a factorised posterior, got {type(posterior).__name__} (it judges every weight by "
            "its own variance): use local_reparam"
        )
    if estimator is flipout and not op.numeric_input:
        raise TypeError(
            f"flipout needs inputs with a sign, {type(op).__name__} takes indices: use weight_sample or local_reparam"
        )


def bias_mean(bias: Bias) -> Tensor | None:
    """The mean of a bias of any kind."""
    return bias.mean() if isinstance(bias, Posterior) else bias


def bias_sample(bias: Bias) -> Tensor | None:
    """A draw of a bias, or the point estimate."""
    return bias.rsample() if isinstance(bias, Posterior) else bias


def _drawn(mean: Tensor, variance: Tensor) -> Tensor:
    """A draw of every output on its own."""
    if isinstance(mean, Gaussian):
        raise TypeError(
            "outputs of an uncertain input cannot be drawn: propagate their moments (bl.moments) or draw weights "
            "(bl.weight_sample)"
        )
    return torch.addcmul(mean, (variance + VARIANCE_FLOOR).sqrt().to(mean.dtype), normal_like(mean))


def _output_moments(posterior: Posterior, op: Op, x: Tensor, bias: Bias) -> tuple[Tensor, Tensor]:
    """Mean and variance of `op(x, W) + b`; the latter in float32 where float16 would underflow."""
    both = posterior.output_moments(op, x, bias_mean(bias))
    if both is None:
        weight = posterior.mean()
        mean = op(typed_as(weight, x), weight, bias_mean(bias))
        with without_float16(x.device.type):
            both = mean, posterior.output_variance(op, wide(x))
    return both[0], _with_bias_variance(both[1], op, bias)


def _with_bias_variance(variance: Tensor, op: Op, bias: Bias) -> Tensor:
    if not isinstance(bias, Posterior):
        return variance
    return variance + op.per_channel(bias.variance().to(wide(bias.mean()).dtype))


def without_float16(kind: str) -> AbstractContextManager[object]:
    """Switch float16 autocast off, where variances underflow; bfloat16 keeps their range."""
    half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16
    return torch.autocast(kind, enabled=False) if half else nullcontext()
