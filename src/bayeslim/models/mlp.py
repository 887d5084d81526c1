"""Multi-layer perceptrons without any Bayes inside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bayeslim.checks.counts import plain_integer

__all__ = ["ACTIVATIONS", "Activation", "Sin", "mlp"]


class Sin(nn.Module):
    """`sin(x)`, elementwise; the activation of the dissertation's regression network."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply the sine."""
        return torch.sin(x)


ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "sin": Sin,
    "identity": nn.Identity,
}
"""Activation by name."""

Activation = str | Callable[[], nn.Module]


def mlp(
    sizes: Sequence[int],
    activations: Activation | Sequence[Activation] = "relu",
    final_activation: Activation | None = None,
    bias: bool = True,
) -> nn.Sequential:
    """Build a plain perceptron: linear layers with an activation after each but the last.

    Args:
        sizes: widths from input to output, e.g. `[784, 300, 100, 10]`.
        activations: one for all hidden layers, or one per hidden layer; a name of `ACTIVATIONS` or
            anything that returns a module when called.
        final_activation: after the last layer; None leaves the outputs raw.
        bias: whether the layers have biases.

    Returns:
        `nn.Sequential` of `nn.Linear` and activations.

    Example:
        >>> mlp([2, 16, 16, 1], activations=["tanh", "relu"])
    """
    sizes = [plain_integer(size) for size in sizes]
    if len(sizes) < 2 or any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"`sizes` must be at least two positive integers, got {sizes}: pass e.g. [784, 300, 10]")
    hidden = len(sizes) - 2
    if isinstance(activations, str) or callable(activations):
        per_layer = [activations] * hidden
    else:
        per_layer = list(activations)
    if len(per_layer) != hidden:
        raise ValueError(
            f"`activations` must be one activation or one per hidden layer ({hidden}), got {len(per_layer)}"
        )
    modules: list[nn.Module] = []
    for index, (fan_in, out) in enumerate(itertools.pairwise(sizes)):
        modules.append(nn.Linear(fan_in, out, bias))
        if index < hidden:
            modules.append(_activation(per_layer[index]))
        elif final_activation is not None:
            modules.append(_activation(final_activation))
    return nn.Sequential(*modules)


def _activation(choice: Activation) -> nn.Module:
    if isinstance(choice, str) and choice not in ACTIVATIONS:
        raise ValueError(f"unknown activation {choice!r}: choose from {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[choice]() if isinstance(choice, str) else choice()
