"""Turn a Bayesian network back into a plain one, in place."""

from __future__ import annotations

from typing import Any

from torch import nn

from bayeslim import layers
from bayeslim.checks.networks import check_network
from bayeslim.surgery import nested_tensors_, replaced, sources, topmost, with_hooks

__all__ = ["collapse_"]


def collapse_(model: nn.Module) -> nn.Module:
    """Replace every Bayesian layer of `model` by the plain torch layer with the posterior mean as its weight.

    The inverse of `bayesianize_`: the result needs no bayeslim, and its `state_dict` has the keys of the original
    network. Ties, hooks, training modes and frozen parameters are kept.

    Args:
        model: changed in place.

    Returns:
        `model`; when `model` itself is a Bayesian layer, its plain counterpart.

    Example:
        >>> plain = collapse_(model)
    """
    check_network(model, "collapse")
    kinds = (layers.BayesLayer, layers.LSTM, layers.GRU, layers.MultiheadAttention)
    collapsed: dict[int, nn.Module] = {}
    tied: dict[int, nn.Parameter] = {}
    for _, module in topmost(model, lambda name, module: isinstance(module, kinds)):
        if id(module) in collapsed:
            continue
        convertible: Any = module
        plain: Any = convertible.to_torch().train(module.training)
        for part, weight, bias in sources(module, plain):
            weight.requires_grad_(_trained(part.weight))
            if bias is not None:
                bias.requires_grad_(_trained(part.weight if part.bias is None else part.bias))
        if isinstance(module, layers.BayesLayer):
            plain.weight = tied.setdefault(id(module.weight), plain.weight)
            if module.bias is not None:
                plain.bias = tied.setdefault(id(module.bias), plain.bias)
        collapsed[id(module)] = with_hooks(plain, module)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder):
            nested_tensors_(module, allowed=True)
    model = replaced(model, collapsed)
    encoders = {
        id(module): with_hooks(module.to_torch(), module)
        for module in model.modules()
        if isinstance(module, layers.TransformerEncoderLayer)
    }
    return replaced(model, encoders)


def _trained(part: nn.Module | nn.Parameter) -> bool:
    if isinstance(part, nn.Parameter):
        return part.requires_grad
    return any(parameter.requires_grad for parameter in part.parameters())
