"""The Bayesian layer: a posterior, a prior, an op and an estimator, composed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import Tensor, nn

from bayeslim.divergence import kl_divergence
from bayeslim.estimators import check_estimator, local_reparam
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, PosteriorFactory
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior
from bayeslim.priors.normal import Normal

__all__ = ["BayesLayer"]


class BayesLayer(nn.Module):
    """A layer whose weight has a posterior.

    The bias is a point estimate unless `bias_posterior` asks for one of its own. The prior is
    copied: two layers never share its state. The forward pass keeps nothing on the module.

    Args:
        op: the operation, linear in the weight.
        weight: initial weight `(out, in / groups, *kernel)`; becomes the posterior mean.
        bias: initial bias `(out,)`, or None.
        posterior: builds the posterior around the weight.
        prior: prior over every weight; `Normal(0, 1)` when None.
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
        prior: Prior | None = None,
        estimator: Callable[..., Any] = local_reparam,
        bias_posterior: PosteriorFactory | None = None,
        bias_prior: Prior | None = None,
    ) -> None:
        super().__init__()
        self.op = op
        self.weight = posterior(weight)
        self.prior = Normal() if prior is None else copy.deepcopy(prior)
        self.estimator = estimator
        self.bias: nn.Parameter | Posterior | None
        if bias is None:
            self.register_parameter("bias", None)
        elif bias_posterior is None:
            self.bias = nn.Parameter(bias.detach().clone())
        else:
            self.bias = bias_posterior(bias)
            self.bias_prior = copy.deepcopy(self.prior if bias_prior is None else bias_prior)
        for q, p in self.posteriors_and_priors():
            p.check(q)
            check_estimator(estimator, q)

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

    def extra_repr(self) -> str:
        """Arguments for `repr`."""
        shape = tuple(self.weight.mean().shape)
        name = getattr(self.estimator, "__name__", repr(self.estimator))
        return f"shape={shape}, op={self.op}, estimator={name}"

    @classmethod
    def _build(cls, op: Op, weight: Tensor, bias: Tensor | None, **bayes: Any) -> Self:
        """Make a `cls` around given tensors, past the constructor that draws new ones."""
        layer = cls.__new__(cls)
        BayesLayer.__init__(layer, op, weight, bias, **bayes)
        return layer
