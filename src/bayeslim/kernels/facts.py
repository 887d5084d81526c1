"""What a posterior states about itself, so that a kernel may compute with it in a way of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["LOG_OF_NOTHING", "NOTHING", "Facts", "stands_for"]


LOG_OF_NOTHING = -800.0
"""The log of a standard deviation of 0: its exponential is 0 even in float64, and the KL stays finite."""


class Facts(NamedTuple):
    """The weights are independent, `w_i ~ N(loc_i, std_i^2)`, and a draw is `loc + std * noise`.

    Either `log_std` or `std` is given, or nothing at all is known.
    """

    loc: Tensor = torch.empty(0)
    """The mean of every weight, before pruning."""
    log_std: Callable[[], Tensor] | None = None
    """Gives the logs of all standard deviations, in the shape of `loc`; a view of fewer numbers will do."""
    std: Callable[[], Tensor] | None = None
    """Gives the standard deviations in that shape, where these are what the posterior has."""
    factors: tuple[Tensor, Tensor] | None = None
    """`log u` (fan_in, k) and `log v` (out, k) of standard deviations `v u^T`."""
    mask: Tensor | None = None
    """1 where a weight stays and 0 where it is pruned, mean and variance alike."""

    unknown: str | None = None
    """Why kernels can do nothing with this posterior; None if they can."""


NOTHING = Facts(unknown="the posterior states no facts, or a subclass overrides what they say")
"""Of posteriors that kernels know only by their methods."""


def stands_for(cls: type[Any], methods: tuple[str, ...]) -> bool:
    """Whether no class below the one that states the facts overrides one of `methods`, which the facts are about."""
    lines = {name: next(i for i, part in enumerate(cls.__mro__) if name in vars(part)) for name in ("facts", *methods)}
    return all(lines[name] >= lines["facts"] for name in methods)
