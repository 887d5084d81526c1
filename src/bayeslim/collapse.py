"""Turn a Bayesian network back into a plain one, in place."""

from __future__ import annotations

from typing import Any

from torch import nn

from bayeslim import layers
from bayeslim.surgery import replaced, topmost, with_hooks

__all__ = ["collapse_"]


def collapse_(model: nn.Module) -> nn.Module:
    """Replace every Bayesian layer of `model` by the plain torch layer with the posterior mean as its weight.

    The inverse of `bayesianize_`: the result needs no bayeslim, and its `state_dict` has the keys of the original
    network. Ties, hooks and training modes are kept.

    Args:
        model: changed in place.

    Returns:
        `model`; when `model` itself is a Bayesian layer, its plain counterpart.

    Example:
        >>> plain = collapse_(model)
    """
    kinds = (layers.BayesLayer, layers.LSTM, layers.GRU, layers.MultiheadAttention)
    collapsed: dict[int, nn.Module] = {}
    weights: dict[int, nn.Parameter] = {}
    for _, module in topmost(model, lambda name, module: isinstance(module, kinds)):
        if id(module) in collapsed:
            continue
        convertible: Any = module
        plain: Any = convertible.to_torch().train(module.training)
        if isinstance(module, layers.BayesLayer):
            plain.weight = weights.setdefault(id(module.weight), plain.weight)
        collapsed[id(module)] = with_hooks(plain, module)
    model = replaced(model, collapsed)
    encoders = {
        id(module): with_hooks(module.to_torch(), module)
        for module in model.modules()
        if isinstance(module, layers.TransformerEncoderLayer)
    }
    return replaced(model, encoders)
