"""Select the inputs that matter, on held-out rows among networks that prune their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import check_counts
from bayeslim.checks.numbers import check_number
from bayeslim.feature_selection.stack import (
    LOSSES,
    Recipe,
    Task,
    fit_stack,
    inputs_used,
    network_of,
    stack_losses,
    stacked_mlp,
)
from bayeslim.predictive.inputs import as_tensor
from bayeslim.runtime.seeds import seeded

__all__ = ["FeatureSelection", "select_features", "selection_errors", "zero_part"]

FEWEST = 20
"""Rows below which a split into training and held-out rows says nothing."""


@dataclass(frozen=True)
class FeatureSelection:
    """The outcome of `select_features`."""

    chosen: Tensor
    """Columns of x that the network uses, from 0, ascending."""
    network: nn.Sequential
    """The chosen network, for inputs and targets in their own units; a binary one gives logits."""
    restart: int
    """Which restart was chosen."""
    validation_losses: list[float]
    """Mean squared error (of the standardised target) or cross-entropy on held-out rows, for each restart."""
    chosen_by_restart: list[list[int]]
    """The inputs that each restart would have chosen."""
    sparsity: float
    """The part of the network's parameters that is zero."""
    false_discovery_rate: float | None
    """Wrong ones among the chosen inputs, where the truth was given."""
    false_nondiscovery_rate: float | None
    """Right ones among the inputs not chosen, where the truth was given."""
    network_advice: ClassVar[str] = "the network that it holds, selection.network"
    """What to pass where a network is wanted, see `check_network`."""


def select_features(
    x: Any,
    y: Any,
    *,
    hidden: Sequence[int] = (5, 3),
    task: Task = "regression",
    restarts: int = 5,
    recipe: Recipe | None = None,
    validation: float = 0.1,
    truth: Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    progress: bool = True,
) -> FeatureSelection:
    """Find the inputs that a target depends on, however non-linearly, and a network that uses them alone.

    Inputs (and the target of a regression) are standardised first, in float64. At least one input is always chosen. The
    network takes values in their own units, in float64 if `x` is: times and other numbers far from 0 need that.

    Args:
        x: (N, p) inputs.
        y: (N,) or (N, 1) targets; 0 and 1 if binary.
        hidden: sizes of the hidden layers; small ones, since every unit costs each input a weight.
        task: "regression" (squared error) or "binary" (cross-entropy).
        restarts: networks to train, of which the one with the smallest loss on held-out rows is chosen.
        recipe: how to train; default `Recipe()`.
        validation: part of the rows to hold out, at most half.
        truth: the columns that matter, where they are known, to score the choice.
        seed: of initial weights, noise, held-out rows and batches.
        device: where to train; on CUDA each step is one captured graph.
        progress: show a progress bar on a terminal.

    Returns:
        The chosen inputs, the network, and how the restarts compare.

    Raises:
        ValueError: if the data or settings make no sense.
        FloatingPointError: if all restarts diverge.

    Example:
        >>> found = select_features(x, y, task="regression", restarts=5, seed=0)
        >>> found.chosen
        tensor([0, 1, 2, 3, 4])
    """
    given, y = as_tensor("x", x), as_tensor("y", y).double().cpu()
    x, y, scaling = _standardised(given.double().cpu(), y, task)
    rows, inputs = x.shape
    check_number("validation", validation, "(0, 0.5]", "pass e.g. 0.1")
    (restarts,) = check_counts(restarts=restarts)
    if truth is not None and not all(0 <= column < inputs for column in truth):
        raise ValueError(f"`truth` must hold columns from 0 to {inputs - 1}, got {list(truth)}")
    held, recipe = max(1, round(validation * rows)), recipe or Recipe()
    with seeded(seed):
        order = torch.randperm(rows)
        x, y = (part[order].to(device)[None] for part in (x, y))
        # Inputs have to earn their place: they start no larger than what is pruned, as with the paper's 1000 inputs.
        stack = stacked_mlp((inputs, *hidden, 1), 1, restarts, recipe.hard_threshold**0.5).to(device)
        fit_stack(stack, x[:, held:], y[:, held:], task, recipe, seed=seed, progress=progress)
    losses = stack_losses(stack, x[:, :held], y[:, :held], task)[0]
    best = int(losses.nan_to_num(torch.inf).argmin())
    network = network_of(stack, 0, best)
    used = inputs_used(stack)[0]
    chosen = used[best].nonzero()[:, 0].cpu()
    rates = (None, None) if truth is None else selection_errors(chosen.tolist(), truth, inputs)
    sparsity = zero_part(network)
    network = _unstandardised(network, scaling).to(torch.float64 if given.dtype == torch.float64 else torch.float32)
    by_restart = [row.nonzero()[:, 0].tolist() for row in used]
    return FeatureSelection(chosen, network, best, losses.tolist(), by_restart, sparsity, *rates)


def zero_part(network: nn.Module) -> float:
    """The part of all parameters, biases included, that is zero: the paper's sparsity."""
    parameters = list(network.parameters())
    return sum(int((p == 0).sum()) for p in parameters) / sum(p.numel() for p in parameters)


def selection_errors(chosen: Sequence[int], truth: Sequence[int], inputs: int) -> tuple[float, float]:
    """False discovery rate (wrong / chosen) and false non-discovery rate (missed / not chosen)."""
    wrong, missed = set(chosen) - set(truth), set(truth) - set(chosen)
    return len(wrong) / max(1, len(chosen)), len(missed) / max(1, inputs - len(chosen))


class _Scaling(NamedTuple):
    """What takes inputs and target to mean 0 and standard deviation 1."""

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor


def _standardised(x: Tensor, y: Tensor, task: Task) -> tuple[Tensor, Tensor, _Scaling]:
    if task not in LOSSES:
        raise ValueError(f"`task` must be one of {', '.join(map(repr, LOSSES))}, got {task!r}")
    if x.ndim != 2:
        raise ValueError(f"`x` must have the shape (rows, inputs), got {tuple(x.shape)}")
    if y.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(f"`y` must have the shape ({len(x)},) or ({len(x)}, 1), as `x` has, got {tuple(y.shape)}")
    if len(x) < FEWEST:
        raise ValueError(f"`x` must have at least {FEWEST} rows, got {len(x)}")
    y = y.flatten()
    constant = (x == x[0]).all(0).nonzero()[:, 0].tolist()
    if constant:
        raise ValueError(f"`x` has {len(constant)} constant columns, first column {constant[0]}: leave them out")
    if bool((y == y[0]).all()):
        raise ValueError(f"`y` is {y[0].item():g} in all rows: there is nothing to explain")
    if task == "binary" and not bool(((y == 0) | (y == 1)).all()):
        raise ValueError("`y` must be 0 or 1 if `task` is 'binary': encode the two classes so")
    scaling = _Scaling(x.mean(0), x.std(0), y.mean(), y.std())
    if task == "binary":
        scaling = scaling._replace(y_mean=torch.zeros_like(y[0]), y_std=torch.ones_like(y[0]))
    inputs, target = (x - scaling.x_mean) / scaling.x_std, (y - scaling.y_mean) / scaling.y_std
    return inputs.float(), target.float(), scaling


@torch.no_grad()
def _unstandardised(network: nn.Sequential, scaling: _Scaling) -> nn.Sequential:
    """The network for values in their own units, in float64."""
    network = network.double()
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    first, last = layers[0], layers[-1]
    first.weight.div_(scaling.x_std)
    first.bias.sub_(first.weight @ scaling.x_mean)
    last.weight.mul_(scaling.y_std)
    last.bias.mul_(scaling.y_std).add_(scaling.y_mean)
    return network
