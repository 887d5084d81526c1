"""The Bayesian layer: a posterior, a prior, an op and an estimator, composed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from bayeslim import moment_rules as moment_rules  # fills the table that `moments` needs
from bayeslim.divergence import kl_divergence
from bayeslim.estimators import (
    bias_mean,
    bias_sample,
    check_estimator,
    local_reparam,
    mean_only,
    moments,
    taylor_moments,
)
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, PosteriorFactory
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior, PriorFactory
from bayeslim.priors.normal import Normal

__all__ = ["BayesLayer", "filled"]

Plain = TypeVar("Plain", bound=nn.Module)


class BayesLayer(nn.Module):
    """A layer whose weight has a posterior.

    The bias is a point estimate unless `bias_posterior` asks for one of its own. The prior is
    copied: two layers never share its state. The forward pass keeps nothing on the module.

    Args:
        op: the operation, linear in the weight.
        weight: initial weight `(out, in / groups, *kernel)`; becomes the posterior mean.
        bias: initial bias `(out,)`, or None.
        posterior: builds the posterior around the weight.
        prior: prior over every weight, or what builds one from the initial weight; `Normal(0, 1)` when None.
        estimator: how a forward pass uses the posterior.
        bias_posterior: builds a posterior around the bias; None keeps it a point estimate.
        bias_prior: prior over the bias; the weight's prior when None.

    Shape:
        As the op's: `x` and the output are those of the torch layer it stands for.
    """

    def __init__(
        self,
        op: Op,
        weight: Tensor,
        bias: Tensor | None,
        *,
        posterior: PosteriorFactory = MeanField,
        prior: Prior | PriorFactory | None = None,
        estimator: Callable[..., Any] = local_reparam,
        bias_posterior: PosteriorFactory | None = None,
        bias_prior: Prior | PriorFactory | None = None,
    ) -> None:
        super().__init__()
        self.op = op
        self.weight = posterior(weight)
        self.prior = _own_prior(prior, weight)
        self.estimator = estimator
        self.bias: nn.Parameter | Posterior | None
        if bias is None:
            self.register_parameter("bias", None)
        elif bias_posterior is None:
            self.bias = nn.Parameter(bias.detach().clone())
        else:
            self.bias = bias_posterior(bias)
            self.bias_prior = _own_prior(prior if bias_prior is None else bias_prior, bias)
        for q, p in self.posteriors_and_priors():
            p.check(q)
            check_estimator(estimator, q, op)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the estimator."""
        return self.estimator(self.weight, self.op, x, self.bias)

    def posteriors_and_priors(self) -> Iterator[tuple[Posterior, Prior]]:
        """The weight's pair, then the bias's if it has one."""
        yield self.weight, self.prior
        if isinstance(self.bias, Posterior):
            yield self.bias, self.bias_prior

    def kl(self) -> Tensor:
        """`KL(q || p)` of this layer, summed, in nats."""
        return torch.stack([kl_divergence(q, p) for q, p in self.posteriors_and_priors()]).sum()

    def draw(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias for one whole forward pass: their means under `mean_only`, else one draw each.

        For layers that use a weight many times, such as recurrent ones.
        """
        if self.estimator is mean_only:
            return self.weight.mean(), bias_mean(self.bias)
        if self.estimator in (moments, taylor_moments):
            raise TypeError("moments are propagated, not drawn: call the layer, or use weight_sample")
        return self.weight.rsample(), bias_sample(self.bias)

    def mean_tensors(self) -> tuple[Tensor, Tensor | None]:
        """Copies of the mean weight and bias."""
        bias = bias_mean(self.bias)
        return self.weight.mean().detach().clone(), None if bias is None else bias.detach().clone()

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        shape = tuple(self.weight.mean().shape)
        name = getattr(self.estimator, "__name__", repr(self.estimator))
        return f"shape={shape}, op={self.op}, estimator={name}"

    @classmethod
    def around(cls, op: Op, weight: Tensor, bias: Tensor | None, **bayes: Any) -> Self:
        """Make a `cls` around given tensors instead of drawing new ones."""
        layer = cls.__new__(cls)
        BayesLayer.__init__(layer, op, weight, bias, **bayes)
        return layer


def filled(plain: Plain, weight: Tensor, bias: Tensor | None) -> Plain:
    """Put tensors into a plain layer that was built without storage."""
    plain.register_parameter("weight", nn.Parameter(weight))
    if bias is not None:
        plain.register_parameter("bias", nn.Parameter(bias))
    return plain


def _own_prior(prior: Prior | PriorFactory | None, weight: Tensor) -> Prior:
    if prior is None:
        return Normal()
    return copy.deepcopy(prior) if isinstance(prior, Prior) else prior(weight)
