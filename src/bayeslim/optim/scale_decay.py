"""Weight decay on parameters that no decay may touch: which they are, and warnings where an optimiser decays them."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from bayeslim.kernels.context import may_be_followed
from bayeslim.likelihoods.base import Likelihood
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior

__all__ = ["DONE", "WATCHED", "never_decayed", "warn_of_decay", "watch_optimizer"]

LOOKS = 10
"""Steps of optimisers after which a network is no longer waited for: some losses are never minimised."""
WATCHED: WeakSet[Posterior] = WeakSet()
"""Posteriors whose optimiser has been looked at, or is waited for."""
_waiting: WeakKeyDictionary[Posterior, tuple[int, dict[int, str]]] = WeakKeyDictionary()
"""Posteriors that wait for their optimiser's first step: the looks that are left, `never_decayed` of the network."""
_hooks: list[RemovableHandle] = []
"""The hook on all optimisers, while a posterior waits."""
DONE: list[RemovableHandle] = []
"""A hook that nobody waits for any more; torch does not allow to remove it while hooks are called."""


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


def warn_of_decay(optimizer: torch.optim.Optimizer, *parts: nn.Module) -> None:
    """Warn, on behalf of who called the function that calls this one, if `optimizer` decays spreads of the parts.

    Args:
        optimizer: any torch optimiser, whether its decay is decoupled or part of the gradient.
        *parts: the network, and the likelihood.
    """
    WATCHED.update(module for part in parts for module in part.modules() if isinstance(module, Posterior))
    _warn(optimizer, {key: name for part in parts for key, name in never_decayed(part).items()})


def watch_optimizer(model: nn.Module, first: Posterior) -> None:
    """Look at the optimiser that trains `model` when it makes its first step, and warn if it decays spreads.

    A loss does not know its optimiser. Until one that holds spreads of `model` makes a step, or any have made ten,
    torch calls a hook of ours before the steps of all; after that nothing is left of it.

    Args:
        model: a network whose loss is computed for training.
        first: a posterior of it, by which it is known again; `model` may be wrapped anew for every loss.
    """
    if first not in WATCHED:
        WATCHED.add(first)
        _waiting[first] = LOOKS, never_decayed(model)
        if not _hooks:
            _hooks.append(register_optimizer_step_pre_hook(_look))
    while DONE:
        DONE.pop().remove()


def _look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if may_be_followed():
        return
    for posterior, (looks, names) in list(_waiting.items()):
        del _waiting[posterior]  # first, for a warning may be an error
        if not _warn(optimizer, names) and looks > 1:
            _waiting[posterior] = looks - 1, names
    if not _waiting:
        DONE.extend(_hooks)
        _hooks.clear()


def _warn(optimizer: torch.optim.Optimizer, names: dict[int, str]) -> bool:
    """Warn if `optimizer` decays one of the named parameters; return whether it holds any."""
    held = [(id(p), group.get("weight_decay", 0)) for group in optimizer.param_groups for p in group["params"]]
    decayed = [names[key] for key, decay in held if key in names and decay]
    if decayed:
        warnings.warn(
            f"{type(optimizer).__name__} decays spreads of the network ({len(decayed)} parameters in all, e.g. "
            f"{decayed[0]!r}): weight decay pulls every log-scale to 0, a standard deviation of 1. Make the optimiser "
            "from bl.param_groups(model), or from bl.param_groups(model, groups) where you have groups already",
            stacklevel=4,
        )
    return any(key in names for key, _ in held)
