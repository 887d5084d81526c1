"""The Bayesian layer: a posterior, a prior, an op and an estimator, composed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from bayeslim import moment_rules as moment_rules  # fills the table that `moments` needs
from bayeslim.checks.networks import check_network
from bayeslim.divergence import kl_divergence
from bayeslim.estimators import (
    bias_mean,
    bias_sample,
    check_estimator,
    check_function,
    kind_of,
    local_reparam,
)
from bayeslim.ops import Op
from bayeslim.posteriors.base import Posterior, PosteriorFactory
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior, PriorFactory
from bayeslim.priors.normal import Normal

__all__ = ["BayesLayer", "filled", "named_posteriors"]

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
        _check_choices(weight, prior, estimator, bias_prior)
        self.op = op
        self.weight = _own_posterior(posterior, weight)
        self.prior = _own_prior(prior, weight)
        self.estimator = estimator
        self.bias: nn.Parameter | Posterior | None
        if bias is None:
            self.register_parameter("bias", None)
        elif bias_posterior is None:
            self.bias = nn.Parameter(bias.detach().clone())
        else:
            self.bias = _own_posterior(bias_posterior, bias)
            self.bias_prior = _own_prior(prior if bias_prior is None else bias_prior, bias)
        for q, p in self.posteriors_and_priors():
            p.check(q)
            check_estimator(estimator, q, op)

    def forward(self, input: Tensor) -> Tensor:
        """Apply the estimator to `input`, which has torch's name."""
        return self.estimator(self.weight, self.op, input, self.bias)

    def posteriors_and_priors(self) -> Sequence[tuple[Posterior, Prior]]:
        """The weight's pair, then the bias's if it has one."""
        own = (self.weight, self.prior)
        return [own, (self.bias, self.bias_prior)] if isinstance(self.bias, Posterior) else [own]

    def kl(self) -> Tensor:
        """`KL(q || p)` of this layer, summed, in nats."""
        return torch.stack([kl_divergence(q, p) for q, p in self.posteriors_and_priors()]).sum()

    def draw(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias for one whole forward pass: their means under `mean_only`, else one draw each.

        For layers that use a weight many times, such as recurrent ones.
        """
        kind = kind_of(self.estimator)
        if kind == "mean":
            return self.weight.mean(), bias_mean(self.bias)
        if kind == "moments":
            raise TypeError("moments are propagated, not drawn: call the layer, or use weight_sample")
        bias = bias_sample(self.bias)  # first, as `weight_sample` does
        return self.weight.rsample(), bias

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


def named_posteriors(model: nn.Module) -> list[tuple[str, Posterior, Prior]]:
    """Every posterior, once, with the name and the prior of the first layer that holds it."""
    if not isinstance(model, nn.Module):
        check_network(model, "measure")
    seen: set[int] = set()
    found: list[tuple[str, Posterior, Prior]] = []
    for name, module in model.named_modules():
        if isinstance(module, BayesLayer):
            for posterior, prior in module.posteriors_and_priors():
                if id(posterior) not in seen:
                    seen.add(id(posterior))
                    found.append((name, posterior, prior))
    return found


def filled(plain: Plain, weight: Tensor, bias: Tensor | None) -> Plain:
    """Put tensors into a plain layer that was built without storage."""
    plain.register_parameter("weight", nn.Parameter(weight))
    if bias is not None:
        plain.register_parameter("bias", nn.Parameter(bias))
    return plain


def _check_choices(weight: Tensor, prior: Any, estimator: Any, bias_prior: Any) -> None:
    """Raise for what could only fail later, or do something that nobody meant."""
    if not weight.is_floating_point():
        raise TypeError(
            f"`weight` must hold real floating-point numbers, got {weight.dtype}: convert the network to e.g. "
            "torch.float32, or leave the layer out by `where`"
        )
    for name, value in (("prior", prior), ("bias_prior", bias_prior)):
        if isinstance(value, type) and issubclass(value, Prior):
            raise TypeError(
                f"`{name}` is the class {value.__name__}: pass an instance of it, e.g. bl.priors.Normal(), or a "
                "function that builds one from the weight"
            )
        if not (value is None or isinstance(value, Prior) or callable(value)):
            raise TypeError(
                f"`{name}` must be a prior or a function that builds one from the weight, got {value!r}: pass e.g. "
                "bl.priors.ARD()"
            )
    check_function(estimator)


def _own_posterior(factory: PosteriorFactory, weight: Tensor) -> Posterior:
    if isinstance(factory, Posterior) or not callable(factory):
        raise TypeError(
            f"`posterior` must build a posterior from a weight, got {factory!r}: pass e.g. bl.posteriors.MeanField, or "
            "functools.partial(bl.posteriors.KTied, k=2)"
        )
    try:
        posterior = factory(weight)
    except IndexError as error:
        if weight.numel():
            raise
        raise ValueError(
            f"a layer without weights, of shape {tuple(weight.shape)}, cannot have this posterior: use "
            "bl.posteriors.MeanField, or leave the layer out by `where`"
        ) from error
    if not isinstance(posterior, Posterior):
        raise TypeError(f"`posterior` must return a Posterior, got {posterior!r}: pass e.g. bl.posteriors.MeanField")
    return posterior


def _own_prior(prior: Prior | PriorFactory | None, weight: Tensor) -> Prior:
    if prior is None:
        return Normal()
    own = copy.deepcopy(prior) if isinstance(prior, Prior) else prior(weight)
    if not isinstance(own, Prior):
        raise TypeError(f"`prior` must be or return a Prior, got {own!r}: pass e.g. bl.priors.ARD()")
    return own
