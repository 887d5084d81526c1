"""Networks of one shape, trained side by side as one stack, which prune their inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayeslim.models import mlp
from bayeslim.optim.cv_adam import CVAdam
from bayeslim.optim.spike_slab import SpikeAndSlab
from bayeslim.runtime.progress_bar import progress_bar
from bayeslim.runtime.seeds import check_seed, seeded
from bayeslim.schedules import Progress, cosine_cycles
from bayeslim.training.replay import ReplayedUpdates

__all__ = ["Recipe", "Task", "fit_stack", "inputs_used", "network_of", "stack_losses", "stacked_mlp"]

Task = Literal["regression", "binary"]
LOSSES: dict[str, Callable[..., Tensor]] = {
    "regression": F.mse_loss,
    "binary": F.binary_cross_entropy_with_logits,
}


@dataclass(frozen=True)
class Recipe:
    """How the networks are trained: CV-Adam with a spike-and-slab prior on input units, as example 1 of its paper.

    The learning rate goes through `cycles` cosine cycles; see `CVAdam` and `SpikeAndSlab` for the rest. The thresholds
    suit standardised inputs and 10 000 rows. The weights of an input that does not matter are of the order of
    `1 / sqrt(rows)`, so with fewer rows raise both: `hard_threshold` to some 10 / rows, `soft_threshold` above it.
    With `feedback`, inputs can come back during the first three quarters of the epochs.
    """

    epochs: int = 3000
    cycles: int = 6
    batch_size: int = 1024
    lr: float = 0.01
    decay: float = 2e-4
    spike_decay: float = 1e-2
    soft_threshold: float = 1e-2
    hard_threshold: float = 1e-3
    warm_up: int = 50
    feedback: bool = False


class StackedLinear(nn.Linear):
    """Linear layers side by side: weight (sets, restarts, outputs, inputs), uniform in [-bound, bound] at first.

    Takes (sets, inputs, batch), which the restarts share, or (sets, restarts, inputs, batch): with the batch last all
    products are plain matrix products of contiguous tensors, three times as fast as the usual order on a CPU.
    """

    def __init__(self, sets: int, restarts: int, inputs: int, outputs: int, bound: float) -> None:
        super().__init__(inputs, outputs)
        self.weight = nn.Parameter(torch.empty(sets, restarts, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(sets, restarts, outputs, 1).uniform_(-bound, bound))

    def forward(self, input: Tensor) -> Tensor:
        """Apply each layer to its own inputs."""
        if input.ndim == 4:
            return self.weight @ input + self.bias
        return (self.weight.flatten(1, 2) @ input).view(*self.weight.shape[:3], -1) + self.bias


def stacked_mlp(sizes: Sequence[int], sets: int, restarts: int, first_bound: float = math.inf) -> nn.Sequential:
    """`sets x restarts` ReLU perceptrons as one network.

    Weights and biases are uniform in +-1 / sqrt(inputs of the layer), as torch has it, but those of the first layer at
    most in +-`first_bound`.
    """
    layers: list[nn.Module] = list(mlp(sizes))
    for number, layer in enumerate(layers):
        if isinstance(layer, nn.Linear):
            bound = min(layer.in_features**-0.5, first_bound if number == 0 else math.inf)
            layers[number] = StackedLinear(sets, restarts, layer.in_features, layer.out_features, bound)
    return nn.Sequential(*layers)


def fit_stack(
    stack: nn.Sequential, x: Tensor, y: Tensor, task: Task, recipe: Recipe, *, seed: int, progress: bool = False
) -> None:
    """Train a stack of networks, each as if alone.

    Args:
        stack: from `stacked_mlp`, on the device of the data.
        x: (sets, N, p); the restarts of a set share its data.
        y: (sets, N).
        task: the loss.
        recipe: the settings.
        seed: of noise and batches.
        progress: show a progress bar on a terminal.

    Raises:
        FloatingPointError: if all restarts of a set diverge.
    """
    rows = x.shape[1]
    size = min(recipe.batch_size, rows)
    steps = rows // size
    optimizer = CVAdam(stack.parameters(), num_data=rows, lr=recipe.lr, weight_decay=recipe.decay, seed=seed)
    pruner = SpikeAndSlab(
        stack,
        optimizer,
        group="input_unit",
        spike_decay=recipe.spike_decay,
        soft_threshold=recipe.soft_threshold,
        hard_threshold=recipe.hard_threshold,
        warm_up=recipe.warm_up,
        feedback=recipe.feedback,
        feedback_until=recipe.epochs * 3 // 4,
    )

    def gradients(index: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = _losses(stack(x.index_select(1, index).mT), y.index_select(1, index), task)
        loss.sum().backward()
        return loss.detach()

    losses = torch.zeros(())
    compute_gradients = ReplayedUpdates(gradients, x.device)
    factor = cosine_cycles(recipe.cycles)
    generator = torch.Generator(x.device).manual_seed(check_seed(seed))
    with progress_bar("selecting", recipe.epochs, show=progress) as advance:
        for epoch in range(recipe.epochs):
            order = torch.randperm(rows, device=x.device, generator=generator)
            for number, index in enumerate(order[: steps * size].split(size)):
                losses = compute_gradients(index)
                now = Progress(epoch * steps + number, steps, recipe.epochs)
                optimizer.param_groups[0]["lr"] = recipe.lr * factor(now)
                optimizer.step()
            pruner.after_epoch()
            if not bool(losses.isfinite().any(1).all()):
                raise FloatingPointError(
                    f"the loss of all restarts is not finite after epoch {epoch + 1}: lower `lr` in the recipe"
                )
            advance()


@torch.no_grad()
def stack_losses(stack: nn.Sequential, x: Tensor, y: Tensor, task: Task) -> Tensor:
    """The mean loss of each network, (sets, restarts)."""
    return _losses(stack(x.mT), y, task)


@torch.no_grad()
def inputs_used(stack: nn.Sequential) -> Tensor:
    """(sets, restarts, p): whether an input reaches the output by weights that are not zero."""
    weights = [layer.weight for layer in stack if isinstance(layer, nn.Linear)]
    reached = torch.ones_like(weights[-1][..., :1])
    for weight in reversed(weights):
        reached = (reached.mT @ (weight != 0).to(weight.dtype)).mT.clamp(max=1)
    return reached[..., 0] > 0


@torch.no_grad()
def network_of(stack: nn.Sequential, chosen_set: int, restart: int) -> nn.Sequential:
    """One network of the stack, as a plain one on the CPU."""
    layers = [layer for layer in stack if isinstance(layer, nn.Linear)]
    with seeded(0):  # initial weights are drawn, to be overwritten
        network = mlp([layers[0].in_features, *(layer.out_features for layer in layers)])
    for plain, layer in zip((part for part in network if isinstance(part, nn.Linear)), layers, strict=True):
        plain.weight.copy_(layer.weight[chosen_set, restart])
        plain.bias.copy_(layer.bias[chosen_set, restart, :, 0])
    return network


def _losses(outputs: Tensor, y: Tensor, task: Task) -> Tensor:
    """(sets, restarts, 1, batch) outputs and (sets, batch) targets to (sets, restarts) mean losses."""
    outputs = outputs[..., 0, :]
    return LOSSES[task](outputs, y[:, None].expand_as(outputs), reduction="none").mean(-1)
