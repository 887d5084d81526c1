"""Parameter groups that treat means, scales and plain parameters as they must be."""

from __future__ import annotations

from typing import Any

from torch import nn

from bayeslim.network_argument import check_network
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior

__all__ = ["merged", "param_groups"]


def param_groups(
    model: nn.Module,
    *,
    lr: float | None = None,
    scale_lr: float | None = None,
    weight_decay: float | None = 0.0,
) -> list[dict[str, Any]]:
    """Split the parameters of `model` for an optimiser.

    Weight decay reaches only plain weights of two or more axes: the prior already shrinks posterior
    means, and decay on a log-scale would pull every standard deviation towards 1.

    Args:
        model: any module.
        lr: learning rate of everything but the scales; None leaves the optimiser's own.
        scale_lr: learning rate of the posteriors' scale parameters; None takes `lr`.
        weight_decay: decay of plain weights; None leaves the optimiser's own.

    Returns:
        Groups named "weights", "plain", "means" and "scales" (empty ones left out).

    Example:
        >>> torch.optim.AdamW(param_groups(model, lr=1e-3, scale_lr=1e-2, weight_decay=1e-4))
    """
    check_network(model, "split")
    if weight_decay is not None and weight_decay < 0:
        raise ValueError(f"`weight_decay` must not be negative, got {weight_decay}")
    kinds: dict[str, dict[int, nn.Parameter]] = {"weights": {}, "plain": {}, "means": {}, "scales": {}}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, Posterior):
                kind = "scales" if name in module.scale_parameters else "means"
            elif parameter.ndim >= 2 and not isinstance(module, Prior):
                kind = "weights"
            else:
                kind = "plain"
            if parameter.requires_grad:
                kinds[kind][id(parameter)] = parameter
    groups: list[dict[str, Any]] = []
    for kind, members in kinds.items():
        rate = scale_lr if kind == "scales" and scale_lr is not None else lr
        group: dict[str, Any] = {"name": kind, "params": list(members.values())}
        decay = weight_decay if kind == "weights" else 0.0
        if decay is not None:
            group["weight_decay"] = decay
        if rate is not None:
            group["lr"] = rate
        if members:
            groups.append(group)
    return groups


def merged(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join groups that differ in name alone: an optimiser takes as long for each as for all in one."""
    found: list[dict[str, Any]] = []
    for group in groups:
        options = {key: value for key, value in group.items() if key not in ("name", "params")}
        for other in found:
            if options == {key: value for key, value in other.items() if key not in ("name", "params")}:
                other["name"] = f"{other['name']}, {group['name']}"
                other["params"] = other["params"] + group["params"]
                break
        else:
            found.append(dict(group))
    return found
