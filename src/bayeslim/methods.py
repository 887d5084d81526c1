"""Named methods: a posterior, a prior and an estimator that belong together."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from bayeslim import estimators, models
from bayeslim.checks.numbers import check_number
from bayeslim.convert import bayesianize_
from bayeslim.layers.initial import he_normal
from bayeslim.models.mlp import Activation
from bayeslim.posteriors import KTied, MeanField, Multiplicative, PosteriorFactory, fan_in_mean_field
from bayeslim.priors import ARD, GammaARD, LogUniform, Normal, Prior, ScaleMixture
from bayeslim.runtime.modes import making_normal_tensors

__all__ = ["METHODS", "Method", "mlp"]


@dataclass(frozen=True)
class Method:
    """What a method name stands for: the three choices that `bayesianize_` takes."""

    posterior: PosteriorFactory
    prior: Callable[[], Prior]
    estimator: Callable[..., Any]


def _two_tied(init: Tensor, **options: float) -> KTied:
    """Rank 2, or 1 for a layer with a single input or output."""
    return KTied(init, k=min(2, init.shape[0], init[0].numel()), **options)


METHODS: dict[str, Method] = {
    "graves": Method(MeanField, functools.partial(Normal, 0.0, 1.0), estimators.weight_sample),
    "bbb": Method(MeanField, ScaleMixture, estimators.weight_sample),
    "molchanov": Method(MeanField, LogUniform, estimators.local_reparam),
    "kingma": Method(
        functools.partial(Multiplicative, alpha=0.1, max_alpha=1.0),
        functools.partial(LogUniform, fit="kingma"),
        estimators.local_reparam,
    ),
    "ard": Method(MeanField, ARD, estimators.local_reparam),
    "gamma": Method(
        functools.partial(MeanField, max_scale=math.exp(-4.0)),
        functools.partial(GammaARD, a=0.51, b=1e-8),
        estimators.local_reparam,
    ),
    "k-tied": Method(_two_tied, functools.partial(Normal, 0.0, 0.3), estimators.weight_sample),
    "vdp": Method(fan_in_mean_field, functools.partial(Normal, 0.0, 1.0), estimators.moments),
}
"""The methods by name. Any part can be replaced by an argument of `mlp` or `bayesianize_`."""


@making_normal_tensors
def mlp(
    sizes: Sequence[int],
    activations: Activation | Sequence[Activation] = "relu",
    final_activation: Activation | None = None,
    method: str = "ard",
    init: Literal["random"] | nn.Module = "random",
    *,
    init_log_variance: float | None = None,
    posterior: PosteriorFactory | None = None,
    prior: Prior | None = None,
    estimator: Callable[..., Any] | None = None,
    bias: bool = True,
    bias_posterior: PosteriorFactory | None = None,
    bias_prior: Prior | None = None,
) -> nn.Sequential:
    """Build a Bayesian perceptron.

    Args:
        sizes: widths from input to output, e.g. `[784, 300, 100, 10]`.
        activations: one for all hidden layers, or one per hidden layer (names: `bl.models.ACTIVATIONS`).
        final_activation: after the last layer; None leaves logits or raw regression outputs, which is
            what the likelihoods expect.
        method: a name of `METHODS`: graves, bbb, molchanov, kingma, ard, gamma, k-tied, vdp.
        init: "random" draws means from `N(0, 2 / fan_in)` and starts biases at zero; a trained network
            with the same linear layers in the same order gives its weights as means.
        init_log_variance: initial log variance of every weight; None takes the posterior's default
            (-10 for mean field, which is small enough to train from scratch or from a trained network).
        posterior: replaces the method's posterior.
        prior: replaces the method's prior.
        estimator: replaces the method's estimator.
        bias: whether the layers have biases.
        bias_posterior: builds posteriors around the biases; None keeps them point estimates.
        bias_prior: prior over the biases; the weights' prior when None.

    Returns:
        `nn.Sequential` of `bl.layers.Linear` and activations.

    Example:
        >>> model = bl.mlp([784, 300, 100, 10], method="molchanov")
        >>> model(torch.zeros(5, 784)).shape
        torch.Size([5, 10])
    """
    if method not in METHODS:
        raise ValueError(f"unknown `method` {method!r}: choose from {', '.join(METHODS)}")
    chosen = METHODS[method]
    plain = models.mlp(sizes, activations, final_activation, bias)
    _set_means_(plain, init)
    build = posterior or chosen.posterior
    if init_log_variance is not None:
        build = _with_scale(build, init_log_variance)
    bayesianize_(
        plain,
        posterior=build,
        prior=prior or chosen.prior(),
        estimator=estimator or chosen.estimator,
        bias_posterior=bias_posterior,
        bias_prior=bias_prior,
    )
    return plain


def _with_scale(build: PosteriorFactory, log_variance: float) -> PosteriorFactory:
    kind = build.func if isinstance(build, functools.partial) else build
    if kind is Multiplicative:
        raise ValueError(
            "`init_log_variance` does not apply to the Multiplicative posterior, whose variance is "
            "alpha * mean^2: pass posterior=functools.partial(Multiplicative, alpha=0.1, max_alpha=1.0)"
        )
    check_number("init_log_variance", log_variance, "[-80, 20]", "pass e.g. -10")
    return functools.partial(build, scale=math.exp(0.5 * log_variance))


@torch.no_grad()
def _set_means_(plain: nn.Sequential, init: Literal["random"] | nn.Module) -> None:
    targets = [module for module in plain if isinstance(module, nn.Linear)]
    if isinstance(init, nn.Module):
        sources = [module for module in init.modules() if isinstance(module, nn.Linear)]
        ours, theirs = ([tuple(m.weight.shape) for m in side] for side in (targets, sources))
        if ours != theirs or [m.bias is None for m in targets] != [m.bias is None for m in sources]:
            raise ValueError(
                "`init` must hold the same nn.Linear layers (weights and biases) in the same order: "
                f"the new network has {ours}, `init` has {theirs}"
            )
        for target, source in zip(targets, sources, strict=True):
            target.load_state_dict(copy.deepcopy(source.state_dict()))
    elif init == "random":
        for target in targets:
            target.weight.copy_(he_normal(*target.weight.shape))
            if target.bias is not None:
                target.bias.zero_()
    else:
        raise ValueError(f"`init` must be 'random' or a trained network, got {init!r}")
