"""Checks of an estimator's parameters, made by `fit` as scikit-learn wants it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from bayeslim.checks.counts import check_counts
from bayeslim.checks.numbers import check_number
from bayeslim.named_models import resolved_device

__all__ = ["check_parameters", "check_same_network", "network_parameters", "widths"]

COUNTS = ("max_iter", "batch_size", "n_samples", "n_iter_no_change")
RANGES: dict[str, tuple[str, str]] = {
    "learning_rate": ("(0, inf)", "0.01"),
    "kl_weight": ("[0, inf)", "1.0"),
    "kl_warmup": ("[0, 1]", "0.5"),
    "validation_fraction": ("(0, 1)", "0.1"),
}
"""Where a real parameter must lie, and an example."""


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for the first parameter that makes no sense; names are checked where they are looked up.

    Example:
        >>> check_parameters(BayesianMLPRegressor(max_iter=0))
        Traceback (most recent call last):
        ValueError: `max_iter` must be a positive integer, got 0: pass e.g. 1
    """
    check_counts(**{name: getattr(estimator, name) for name in COUNTS})
    for name, (allowed, example) in RANGES.items():
        check_number(name, getattr(estimator, name), allowed, f"pass e.g. {example}")
    widths(estimator.hidden_layer_sizes)
    resolved_device(estimator.device, "`device`")


def network_parameters(estimator: Any) -> dict[str, Any]:
    """The parameters that are settled once the network is built."""
    fixed = {name: getattr(estimator, name) for name in ("activation", "method", "standardise")}
    return {"hidden_layer_sizes": tuple(widths(estimator.hidden_layer_sizes))} | fixed


def check_same_network(estimator: Any, built: dict[str, Any]) -> None:
    """Raise ValueError if parameters are no longer those with which the network was built that training goes on with.

    Args:
        estimator: with `warm_start`.
        built: its `network_parameters` of then.
    """
    changed = [
        f"{name}={value!r} (it was {built[name]!r})"
        for name, value in network_parameters(estimator).items()
        if value != built[name]
    ]
    if changed:
        raise ValueError(
            f"`warm_start` goes on with the fitted network, which does not fit {', '.join(changed)}: set the old "
            "parameters again, or warm_start=False to build a new network"
        )


def widths(hidden_layer_sizes: Any) -> list[int]:
    """The widths of the hidden layers; one integer stands for one layer.

    Raises:
        ValueError: unless they are positive integers.

    Example:
        >>> widths((50, 50))
        [50, 50]
    """
    single = isinstance(hidden_layer_sizes, Integral)
    sizes = [hidden_layer_sizes] if single else hidden_layer_sizes
    if not isinstance(sizes, Sequence) or not all(isinstance(size, Integral) and int(size) > 0 for size in sizes):
        raise ValueError(
            f"`hidden_layer_sizes` must be positive integers, got {hidden_layer_sizes!r}: pass e.g. (50, 50)"
        )
    return [int(size) for size in sizes]
