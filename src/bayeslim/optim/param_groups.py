"""Parameter groups that treat means, scales and plain parameters as they must be."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.optim.scale_decay import never_decayed
from bayeslim.posteriors.base import Posterior
from bayeslim.priors.base import Prior

__all__ = ["merged", "param_groups"]


def param_groups(
    model: nn.Module,
    groups: Iterable[Mapping[str, Any]] | None = None,
    *,
    lr: float | None = None,
    scale_lr: float | None = None,
    weight_decay: float | None = 0.0,
) -> list[dict[str, Any]]:
    """Split the parameters of `model` for an optimiser.

    Weight decay reaches only plain weights of two or more axes: the prior already shrinks posterior
    means, and decay on a log-scale would pull every standard deviation towards 1.

    Given `groups`, e.g. those of another library's trainer, it mends these: what sets a spread (scales of posteriors,
    what priors and likelihoods learn) moves into groups without weight decay, which keep all other options. All else
    stays as it is: means decay where the groups say so, and a tensor that is frozen or not of `model` is left alone.

    Args:
        model: any module.
        groups: groups to mend, as torch's optimisers take and have them; None makes new ones.
        lr: learning rate of everything but the scales; None leaves the optimiser's own. Not with `groups`.
        scale_lr: learning rate of the posteriors' scale parameters; None takes `lr`. Not with `groups`.
        weight_decay: decay of plain weights; None leaves the optimiser's own. Not with `groups`.

    Returns:
        Groups named "weights", "plain", "means" and "scales" (empty ones left out), or those of `groups` in their
        order, each followed by what had to leave it.

    Example:
        >>> torch.optim.AdamW(param_groups(model, lr=1e-3, scale_lr=1e-2, weight_decay=1e-4))
        >>> optimizer.param_groups = param_groups(model, optimizer.param_groups)  # before the first step
    """
    check_network(model, "split")
    if weight_decay is not None and weight_decay < 0:
        raise ValueError(f"`weight_decay` must not be negative, got {weight_decay}")
    if groups is not None:
        given = {"lr": lr, "scale_lr": scale_lr, "weight_decay": weight_decay or None}
        if chosen := [name for name, value in given.items() if value is not None]:
            raise ValueError(
                f"`{chosen[0]}` is an option of each group in `groups`: set it there, and leave it out here"
            )
        return _mended(groups, never_decayed(model))
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
    split: list[dict[str, Any]] = []
    for kind, members in kinds.items():
        rate = scale_lr if kind == "scales" and scale_lr is not None else lr
        group: dict[str, Any] = {"name": kind, "params": list(members.values())}
        decay = weight_decay if kind == "weights" else 0.0
        if decay is not None:
            group["weight_decay"] = decay
        if rate is not None:
            group["lr"] = rate
        if members:
            split.append(group)
    return split


def _mended(groups: Iterable[Mapping[str, Any]], spared: Container[int]) -> list[dict[str, Any]]:
    """The groups, without decay on the parameters of these identities."""
    mended: list[dict[str, Any]] = []
    for group in groups:
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(
                f"`groups` must hold groups of parameters, got {type(group).__name__}: pass e.g. "
                '[{"params": list(model.parameters()), "weight_decay": 0.01}]'
            )
        members = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
        decayed = group.get("weight_decay") != 0  # without the key it is the optimiser's own
        # torch takes pairs of a name and a parameter too
        moved = [decayed and id(entry[1] if isinstance(entry, tuple) else entry) in spared for entry in members]
        for mine, changed in ((False, {}), (True, {"weight_decay": 0.0})):
            own = [entry for entry, leaves in zip(members, moved, strict=True) if leaves is mine]
            if own or not (mine or members):
                mended.append({**group, "params": own, **changed})
    return mended


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
