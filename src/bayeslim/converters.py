"""Which layers of torch have a Bayesian counterpart."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.nn.utils import parametrize

from bayeslim import layers

__all__ = ["CONVERTERS", "kind_of"]

CONVERTERS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    nn.Linear: layers.Linear.from_torch,
    nn.Conv1d: layers.Conv1d.from_torch,
    nn.Conv2d: layers.Conv2d.from_torch,
    nn.Conv3d: layers.Conv3d.from_torch,
    nn.ConvTranspose1d: layers.ConvTranspose1d.from_torch,
    nn.ConvTranspose2d: layers.ConvTranspose2d.from_torch,
    nn.ConvTranspose3d: layers.ConvTranspose3d.from_torch,
    nn.Embedding: layers.Embedding.from_torch,
    nn.LSTM: layers.LSTM.from_torch,
    nn.GRU: layers.GRU.from_torch,
    nn.MultiheadAttention: layers.MultiheadAttention.from_torch,
}
"""The exact torch type of a layer -> what builds its Bayesian counterpart."""


def kind_of(module: nn.Module) -> type[nn.Module]:
    """The type of a module; of a parametrised one, whose class is made on the fly, that of the layer it was.

    Example:
        >>> kind_of(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
        <class 'torch.nn.modules.linear.Linear'>
    """
    return type(module).__mro__[1] if parametrize.is_parametrized(module) else type(module)
