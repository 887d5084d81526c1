"""Turn a plain network into a Bayesian one, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bayeslim import layers
from bayeslim.estimators import local_reparam
from bayeslim.layers.base import BayesLayer
from bayeslim.posteriors.base import PosteriorFactory
from bayeslim.posteriors.mean_field import MeanField
from bayeslim.priors.base import Prior

__all__ = ["CONVERTERS", "bayesianize_"]

CONVERTERS: dict[type[nn.Module], Callable[..., BayesLayer]] = {
    nn.Linear: layers.Linear.from_torch,
    nn.Conv1d: layers.Conv1d.from_torch,
    nn.Conv2d: layers.Conv2d.from_torch,
    nn.Conv3d: layers.Conv3d.from_torch,
    nn.ConvTranspose1d: layers.ConvTranspose1d.from_torch,
    nn.ConvTranspose2d: layers.ConvTranspose2d.from_torch,
    nn.ConvTranspose3d: layers.ConvTranspose3d.from_torch,
}
"""The exact torch type of a layer -> what builds its Bayesian counterpart."""


def bayesianize_(
    model: nn.Module,
    *,
    posterior: PosteriorFactory = MeanField,
    prior: Prior | None = None,
    estimator: Callable[..., Any] = local_reparam,
    bias_posterior: PosteriorFactory | None = None,
    bias_prior: Prior | None = None,
    where: Callable[[str, nn.Module], bool] = lambda name, module: True,
) -> nn.Module:
    """Replace the layers of `model` by Bayesian ones whose means are the present weights.

    Args:
        model: any module; changed in place.
        posterior: builds the posterior around a weight.
        prior: prior over the weights; `Normal(0, 1)` when None.
        estimator: how the layers use their posterior.
        bias_posterior: builds a posterior around a bias; None keeps biases point estimates.
        bias_prior: prior over the biases; the weights' prior when None.
        where: keeps a layer as it is where this returns False for (name, module).

    Returns:
        `model`; when `model` itself is a layer in the table, its Bayesian counterpart.

    Raises:
        ValueError: if no layer matched, naming the types that were seen.

    Example:
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> bayesianize_(net, where=lambda name, module: name != "2")
    """
    options = {
        "posterior": posterior,
        "prior": prior,
        "estimator": estimator,
        "bias_posterior": bias_posterior,
        "bias_prior": bias_prior,
    }
    # A module that stands in several places stays one module: every name is visited.
    matched = {
        name: module
        for name, module in model.named_modules(remove_duplicate=False)
        if type(module) in CONVERTERS and where(name, module)
    }
    if not matched:
        seen = sorted({type(module).__name__ for module in model.modules()})
        known = ", ".join(kind.__name__ for kind in CONVERTERS)
        raise ValueError(
            f"no layer of `model` was converted: it holds {', '.join(seen)}; convertible are "
            f"{known}, and `where` must accept at least one of them"
        )
    converted = {
        module: CONVERTERS[type(module)](module, **options).train(module.training)
        for module in dict.fromkeys(matched.values())
    }
    if "" in matched:
        return converted[model]
    for name, module in matched.items():
        model.set_submodule(name, converted[module])
    return model
