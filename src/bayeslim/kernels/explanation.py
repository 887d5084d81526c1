"""Which way each layer of a network is computed, and why not by a faster one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from bayeslim.kernels.context import collecting

__all__ = ["NOTES", "Choice", "Explanation", "explain"]


class Choice(NamedTuple):
    """The way one call was computed."""

    posterior: str
    """The path of the posterior in the network."""
    kernel: str
    """What was asked for."""
    way: str
    """The fast path, or "reference"."""
    refusals: Mapping[str, str]
    """Why each other path was not taken."""


class Explanation(tuple[Choice, ...]):
    """The choices of one pass through a network, in order; printed as a table."""

    def __str__(self) -> str:
        lines: list[str] = []
        for choice in self:
            lines.append(f"{choice.posterior:24} {choice.kernel:16} {choice.way}")
            lines += [f"{'':24} not {name}: {reason}" for name, reason in choice.refusals.items()]
        return "\n".join(lines) or "no layer of this network has a posterior that a kernel was asked for"


NOTES: list[list[tuple[object, str, str, Mapping[str, str]]]] = []
"""Takes notes of every call while it is not empty: posterior, kernel, way, refusals."""


def explain(model: nn.Module, *inputs: Any) -> Explanation:
    """Run a network once as the objective does, and say which way each layer is computed.

    Surroundings count: call it under the autocast, on the device and with the types that training will have.

    Args:
        model: any network with Bayesian layers.
        inputs: what its forward takes.

    Example:
        >>> print(bl.kernels.explain(bl.mlp([4, 8, 2]), torch.randn(16, 4)))
        0.weight                 draw_by_weight   eager_cpu
        2.weight                 draw_by_weight   eager_cpu
    """
    modules = list(model.named_modules())
    pairs = [pair for _, module in modules for pair in getattr(module, "posteriors_and_priors", tuple)()]
    priors = {q: prior for q, prior in ((q, p.as_normal(q)) for q, p in pairs) if prior is not None}
    notes: list[tuple[object, str, str, Mapping[str, str]]] = []
    NOTES.append(notes)
    try:
        with torch.enable_grad(), collecting(priors, {}, pairs[0][0].mean() if pairs else torch.empty(0)):
            model(*inputs)
    finally:
        NOTES.pop()
    names = {id(module): name for name, module in modules}
    found = ((names.get(id(q), type(q).__name__), kernel, way, refusals) for q, kernel, way, refusals in notes)
    return Explanation(Choice(*each) for each in found)
