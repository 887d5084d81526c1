"""Switch the estimator of a whole network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from bayeslim.checks.networks import check_network
from bayeslim.estimators import check_estimator, check_function
from bayeslim.layers.base import BayesLayer
from bayeslim.runtime.swapping import swapped

__all__ = ["using"]


@contextmanager
def using(model: nn.Module, estimator: Callable[..., Any]) -> Iterator[nn.Module]:
    """Run every Bayesian layer of `model` with `estimator` inside the block.

    Sampling never depends on `model.training`; this is the switch. The layers' own estimators come
    back at the end, also after an exception. The switch is on the module, so do not run the same
    model in another thread meanwhile; only `bl.predict` and `bl.evaluate` take turns by themselves.

    Args:
        model: any module with Bayesian layers inside.
        estimator: e.g. `bl.mean_only` for a deterministic pass.

    Raises:
        TypeError: if the estimator is no function, or not valid for one of the posteriors (nothing is switched).

    Example:
        >>> with using(model, mean_only):
        ...     y = model(x)
    """
    check_network(model, "switch")
    check_function(estimator)
    layers = [module for module in model.modules() if isinstance(module, BayesLayer)]
    for layer in layers:
        for posterior, _ in layer.posteriors_and_priors():
            check_estimator(estimator, posterior, layer.op)
    with swapped((layer, "estimator", estimator) for layer in layers):
        yield model
