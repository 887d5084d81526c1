"""Prune a network on its posterior, in place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.layers.attention import MultiheadAttention
from bayeslim.layers.base import BayesLayer
from bayeslim.masks import Masked, mask_of, unmasked
from bayeslim.posteriors.base import Posterior
from bayeslim.pruning.criteria import LOG_ALPHA, Criterion, check_criterion
from bayeslim.runtime.seeds import check_seed
from bayeslim.surgery import copied

__all__ = ["bayes_layers", "prune_", "random_like", "set_masks_", "unprune_"]


@torch.no_grad()
def prune_(
    model: nn.Module,
    criterion: Criterion = LOG_ALPHA,
    *,
    threshold: float | None = None,
    amount: float | None = None,
    structure: Literal["weight", "input", "output", "head"] = "weight",
    scope: Literal["global", "layer"] = "global",
    where: Callable[[str, BayesLayer], bool] = lambda name, layer: True,
    allow_empty: bool = False,
) -> dict[str, float]:
    """Set weights to exactly zero, mean and variance, for good: sampling, training, saving and loading keep them so.

    Masks only grow: a weight that was pruned before stays pruned until `unprune_`.

    Args:
        model: network with Bayesian layers of factorised posteriors.
        criterion: how weights are judged.
        threshold: prune what does not reach it, in the criterion's own units; None takes the criterion's.
        amount: prune this part of the weights instead, lowest scores first, in [0, 1).
        structure: prune single weights, whole input units, whole output units or channels, or attention heads.
        scope: with `amount`, rank over the whole network or within each layer.
        where: leave a layer alone where this returns False for (name, layer), unless it shares its weights with
            another one.
        allow_empty: let a layer lose all its weights, which makes the network constant; an error otherwise.

    Returns:
        The part of each layer's weights that is pruned now.

    Raises:
        ValueError: if the arguments make no sense, scores are NaN, no layer matches, or a layer would be emptied.
            The network is then unchanged.
        TypeError: for snapshots, of which each has weights of its own, and for what is no criterion.

    Example:
        >>> prune_(model, threshold=3.0)
        >>> prune_(model, MAGNITUDE, amount=0.9)
    """
    check_criterion(criterion)
    if threshold is not None and amount is not None:
        raise ValueError("`threshold` and `amount` exclude each other: pass one")
    if amount is not None and (isinstance(amount, str) or not 0 <= amount < 1):
        raise ValueError(f"`amount` must lie in [0, 1), got {amount!r}: pass e.g. 0.9")
    if scope not in ("global", "layer"):
        raise ValueError(f"`scope` must be 'global' or 'layer', got {scope!r}")
    layers = {name: layer for name, layer in bayes_layers(model).items() if where(name, layer)}
    groups = _head_groups(model, layers) if structure == "head" else {name: [(name, "")] for name in layers}
    if not groups:
        raise ValueError("no layer to prune: `model` has no Bayesian layer that `where` and `structure` accept")
    scores: dict[str, Tensor] = {}
    for key, members in groups.items():
        heads = cast(MultiheadAttention, model.get_submodule(key)).num_heads if structure == "head" else 1
        score = criterion.scores(layers[members[0][0]].weight, structure, heads)
        scores[key] = score.expand(layers[members[0][0]].weight.mean().shape)
    if amount is None:
        cut = criterion.cut(threshold)
        keep = {key: score >= cut for key, score in scores.items()}
    else:
        sets = [list(scores)] if scope == "global" else [[key] for key in scores]
        keep = {
            k: v for keys in sets for k, v in _keep_best({key: scores[key] for key in keys}, amount, structure).items()
        }
    masks = {
        name: _for_member(keep[key], layers[name].weight.mean(), role)
        for key, members in groups.items()
        for name, role in members
    }
    touched = {unmasked(layers[name].weight) for name in masks}
    sharing = {name: layer for name, layer in bayes_layers(model).items() if unmasked(layer.weight) in touched}
    masks |= {name: torch.ones_like(mask_of(layer.weight)) for name, layer in sharing.items() if name not in masks}
    return set_masks_(sharing, masks, allow_empty)


def bayes_layers(model: nn.Module, action: str = "prune") -> dict[str, BayesLayer]:
    """Every Bayesian layer by name; a TypeError for what is no network, which says what is done to one."""
    check_network(model, action)
    return {name: module for name, module in model.named_modules() if isinstance(module, BayesLayer)}


@torch.no_grad()
def set_masks_(layers: dict[str, BayesLayer], masks: dict[str, Tensor], allow_empty: bool = False) -> dict[str, float]:
    """Multiply masks (1 keeps) onto the layers; return the part of each that is pruned now.

    Layers that share a posterior share a mask as well: what one of them loses is lost to all.

    Raises:
        ValueError: if a layer would be emptied and that is not allowed; nothing is changed then.
    """
    whole: dict[Posterior, Tensor] = {}
    for name, layer in layers.items():
        inner, kept = unmasked(layer.weight), layer.weight.kept()
        for mask in (masks[name],) if kept is None else (kept, masks[name]):
            whole[inner] = whole[inner] * mask if inner in whole else mask
    joined = {name: whole[unmasked(layer.weight)] for name, layer in layers.items()}
    empty = [name for name, mask in joined.items() if not bool(mask.any())]
    if empty and not allow_empty:
        raise ValueError(
            f"layer {empty[0]!r} would lose all its {joined[empty[0]].numel()} weights and the network would be "
            "constant: lower the threshold or amount, leave the layer out by `where`, or pass allow_empty=True"
        )
    masked = {inner: Masked(inner, mask) for inner, mask in whole.items()}
    for layer in layers.values():
        layer.weight = masked[unmasked(layer.weight)]
    return {name: 1 - int(mask.count_nonzero()) / mask.numel() for name, mask in joined.items()}


def unprune_(model: nn.Module) -> None:
    """Remove all masks: pruned weights come back as they were when they were pruned.

    Example:
        >>> unprune_(model)
    """
    for layer in bayes_layers(model).values():
        layer.weight = unmasked(layer.weight)


@torch.no_grad()
def random_like(pruned: nn.Module, seed: int = 0) -> nn.Module:
    """A copy of a pruned network in which each layer has lost as many weights, at random places.

    The control of every pruning claim: the same counts, without looking at the posterior.

    Args:
        pruned: network with masks.
        seed: of the choice.

    Example:
        >>> bl.evaluate(random_like(model), test)["accuracy"]
    """
    check_network(pruned, "prune", "pruned")
    control = copied(pruned)
    generator = torch.Generator().manual_seed(check_seed(seed))
    shuffled: dict[Posterior, Masked] = {}
    for layer in bayes_layers(control).values():
        inner, mask = unmasked(layer.weight), mask_of(layer.weight)
        if inner not in shuffled:
            order = torch.randperm(mask.numel(), generator=generator).to(mask.device)
            shuffled[inner] = Masked(inner, mask.flatten()[order].view_as(mask))
        layer.weight = shuffled[inner]
    return control


def _keep_best(scores: dict[str, Tensor], amount: float, structure: str) -> dict[str, Tensor]:
    """Keep all but the lowest `amount` of the weights.

    Single weights meet the amount exactly, ties broken by position; groups stay whole, so at most that much goes.
    """
    kind = functools.reduce(torch.promote_types, (score.dtype for score in scores.values()))
    flat = [score.flatten().to(kind) for score in scores.values()]
    count = sum(map(len, flat))
    if structure == "weight":
        lost = round(amount * count)
        cut = _ranked(flat, max(0, lost - 1))
        keep = [part > cut for part in flat]
        missing = count - lost - sum(int(kept.count_nonzero()) for kept in keep)
        for part, kept in zip(reversed(flat), reversed(keep), strict=True):  # of equal scores the last ones stay
            if missing:
                tied = (part == cut).nonzero()[-missing:, 0]
                kept[tied] = True
                missing -= len(tied)
    else:
        cut = _ranked(flat, int(amount * count))
        keep = [part >= cut for part in flat]
    return {key: kept.view(scores[key].shape) for key, kept in zip(scores, keep, strict=True)}


SAMPLE = 2**18
"""Scores that are sorted to find out where to look for the one that is wanted."""


def _ranked(scores: list[Tensor], rank: int) -> float:
    """The score that so many come before, from the lowest, without sorting them all.

    Between two scores of a sample lie few others, among which the wanted one almost always is.
    """
    count = sum(map(len, scores))
    sample = torch.cat([part[:: count // SAMPLE + 1] for part in scores]).sort().values
    place, margin = rank * len(sample) // count, 4 * math.isqrt(len(sample))
    low, high = sample[max(0, place - margin)], sample[min(len(sample) - 1, place + margin)]
    below, upto = (sum(int(few(part).count_nonzero()) for part in scores) for few in (low.gt, high.ge))
    if rank < below:
        among = [part[part < low] for part in scores]
    elif rank < upto:
        among, rank = [part[(part >= low) & (part <= high)] for part in scores], rank - below
    else:
        among, rank = [part[part > high] for part in scores], rank - upto
    return torch.cat(among).kthvalue(rank + 1).values.item()


def _head_groups(model: nn.Module, layers: dict[str, BayesLayer]) -> dict[str, list[tuple[str, str]]]:
    """Attention modules by name and their projections: the values are judged, the others follow."""
    roles = (("v_proj", "rows"), ("q_proj", "rows"), ("k_proj", "rows"), ("out_proj", "columns"))
    found: dict[str, list[tuple[str, str]]] = {}
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention):
            members = [(f"{name}.{part}" if name else part, role) for part, role in roles]
            if all(member in layers for member, _ in members):
                found[name] = members
    return found


def _for_member(keep: Tensor, weight: Tensor, role: str) -> Tensor:
    """The mask of one layer of a group, from the mask of the judged one."""
    if role == "rows":
        return keep[:, :1].expand(weight.shape)
    if role == "columns":
        return keep[:, 0].expand(weight.shape)
    return keep
