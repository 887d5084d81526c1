"""Weight decay on parameters that no decay may touch: which they are, and warnings where an optimiser decays them."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from bayeslim.likelihoods.base import Likelihood
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior

__all__ = ["never_decayed", "warn_of_decay", "watch_optimizer"]

LOOKS = 10
"""Steps of optimisers after which a network is no longer waited for: some losses are never minimised."""
_known: WeakSet[nn.Module] = WeakSet()
"""Networks whose optimiser has been looked at, or is waited for."""
_waiting: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""Networks whose optimiser has not made a step yet, with the looks that are left."""
_hooks: list[RemovableHandle] = []
"""The hook on all optimisers, while a network waits."""


def never_decayed(model: nn.Module) -> dict[int, str]:
    """Names by identity of the trained parameters that set a spread, which decay would pull to a value of its own.

    They are the scales of posteriors (log-scales, factors, log alpha), and what priors and likelihoods learn.

    Args:
        model: a network or likelihood, or an `nn.ModuleList` of the two.

    Example:
        >>> list(never_decayed(bl.mlp([4, 2])).values())
        ['0.weight.log_scale']
    """
    found: dict[int, str] = {}
    for path, module in model.named_modules():
        whole = isinstance(module, Prior | Likelihood)
        scales = module.scale_parameters if isinstance(module, Posterior) else ()
        for name, parameter in module.named_parameters(recurse=whole):
            if (whole or name in scales) and parameter.requires_grad:
                found.setdefault(id(parameter), f"{path}.{name}".removeprefix("."))
    return found


def warn_of_decay(optimizer: torch.optim.Optimizer, *parts: nn.Module, stacklevel: int) -> bool:
    """Warn if `optimizer` decays spreads of the parts; return whether it holds any.

    Args:
        optimizer: any torch optimiser, whether its decay is decoupled or part of the gradient.
        *parts: the network, and the likelihood.
        stacklevel: of the warning, where 1 is the function that calls this one.
    """
    _known.update(parts)
    names = {key: name for part in parts for key, name in never_decayed(part).items()}
    groups = [([id(p) for p in group["params"]], group.get("weight_decay", 0)) for group in optimizer.param_groups]
    decayed = [names[key] for keys, decay in groups if decay for key in keys if key in names]
    if decayed:
        warnings.warn(
            f"{type(optimizer).__name__} decays the spreads of the network, {len(decayed)} parameters (e.g. "
            f"{decayed[0]!r}): weight decay pulls every log-scale to 0, a standard deviation of 1. Make the optimiser "
            "from bl.param_groups(model), or bl.param_groups(model, groups) where you have groups already",
            stacklevel=stacklevel + 1,
        )
    return any(key in names for keys, _ in groups for key in keys)


def watch_optimizer(model: nn.Module) -> None:
    """Look at the optimiser that trains `model` when it makes its first step, and warn if it decays spreads.

    A loss does not know its optimiser. Until one that holds parameters of `model` has made a step, or any have made
    ten, torch calls a hook of ours before the steps of all; after that nothing is left of it.

    Args:
        model: a network whose loss is computed for training.
    """
    if model not in _known:
        _known.add(model)
        _waiting[model] = LOOKS
        if not _hooks:
            _hooks.append(register_optimizer_step_pre_hook(_look))
    elif _hooks and not _waiting:
        _hooks.pop().remove()  # here, since torch does not allow it while hooks are called


def _look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for model, looks in list(_waiting.items()):
        del _waiting[model]  # first, for a warning may be an error
        if not warn_of_decay(optimizer, model, stacklevel=3) and looks > 1:
            _waiting[model] = looks - 1
