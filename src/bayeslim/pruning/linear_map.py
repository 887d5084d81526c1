"""One view of every layer that mixes channels, Bayesian or plain: which input matters to which output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvTransposeNd

from bayeslim import layers
from bayeslim.architecture import PRIORS
from bayeslim.masks import mask_of, unmasked
from bayeslim.ops import ConvOp, ConvTransposeOp, swap_channels
from bayeslim.posteriors import KTied, MeanField, Multiplicative
from bayeslim.posteriors.base import Posterior

__all__ = ["BAYESIAN", "PLAIN", "LinearMap", "linear_map"]

BAYESIAN = (
    layers.Linear,
    layers.Conv1d,
    layers.Conv2d,
    layers.Conv3d,
    layers.ConvTranspose1d,
    layers.ConvTranspose2d,
    layers.ConvTranspose3d,
)
PLAIN = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
POSTERIORS = (MeanField, Multiplicative, KTied)


@dataclass(frozen=True)
class LinearMap:
    """A layer as a matrix of (outputs, inputs), kernel positions summed up; across groups it is empty."""

    mean: Tensor
    """Mean weights in float64, summed over the kernel; zero where pruned."""
    alive: Tensor
    """Whether any weight between the two is not pruned."""
    certain: Tensor
    """Whether all weights between the two have no variance."""
    bias: Tensor
    """Mean of the bias in float64, zero without one."""
    bias_certain: bool
    takes_constants: bool
    """Whether a constant input adds the same everywhere, so that the bias can take it over."""
    groups: int
    dimensions: int
    """Axes of the positions after the channels; 0 for a linear layer."""
    kernel: int
    """Number of kernel positions."""

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.mean.shape[0]

    @property
    def inputs(self) -> int:
        """Input channels."""
        return self.mean.shape[1]

    def foldable(self, constant: Tensor, value: Tensor, exact: bool) -> Tensor:
        """(outputs, inputs): where an input's part in an output can go into the bias.

        Args:
            constant: (inputs,) whether the input is constant.
            value: (inputs,) its value.
            exact: demand that the variance of the output is kept too.
        """
        zero = (constant & (value == 0))[None].expand_as(self.alive)
        if not self.takes_constants:
            return zero
        return zero | (constant[None] & (self.certain if exact else torch.ones_like(self.certain)))


def linear_map(module: nn.Module) -> LinearMap | None:
    """The view of a layer; None if its type, posterior or prior is not one that can be cut."""
    layer: Any = module
    if type(module) in BAYESIAN:
        bias = layer.bias
        families = [unmasked(q) for q, _ in layer.posteriors_and_priors()]
        if any(type(q) not in POSTERIORS for q in families):
            return None
        if any(type(p) not in PRIORS.values() for _, p in layer.posteriors_and_priors()):
            return None
        weight, variance, mask = layer.weight.mean(), layer.weight.variance(), mask_of(layer.weight)
        if isinstance(bias, Posterior):
            bias_mean, certain = bias.mean(), not bool(bias.variance().any())
            movable = type(bias) is MeanField
        else:
            bias_mean, certain, movable = bias, True, True
        uniform = movable and _uniform(layer.op, weight.shape[2:])
        groups, dimensions = layer.op.groups, getattr(layer.op, "dimensions", 0)
    elif type(module) in PLAIN:
        weight, bias_mean, certain = layer.weight, layer.bias, True
        groups, dimensions = getattr(layer, "groups", 1), weight.ndim - 2
        if isinstance(layer, _ConvTransposeNd):
            weight, uniform = swap_channels(weight, groups), False
        else:
            uniform = _uniform(layer, weight.shape[2:])
        variance, mask = torch.zeros_like(weight), torch.ones_like(weight)
    else:
        return None
    flat = [
        part.detach().flatten(2) if part.ndim > 2 else part.detach()[..., None] for part in (weight, variance, mask)
    ]
    mean, variance, mask = (part.double().cpu() for part in flat)
    blocks = (mean.sum(2), mask.any(2), ~variance.any(2))
    mean, alive, certain_weights = (_across_groups(block, groups) for block in blocks)
    bias = torch.zeros(len(mean), dtype=torch.float64) if bias_mean is None else bias_mean.detach().double().cpu()
    return LinearMap(
        mean, alive, certain_weights | ~alive, bias, certain, uniform, groups, dimensions, weight[0, 0].numel()
    )


def _uniform(options: Any, kernel: torch.Size) -> bool:
    """Whether a constant image stays one: no zeros come in from the border."""
    if isinstance(options, ConvTransposeOp):
        return False
    if not isinstance(options, ConvOp | nn.Conv1d | nn.Conv2d | nn.Conv3d) or options.padding_mode != "zeros":
        return True
    if options.padding == "same":
        return all(size == 1 for size in kernel)
    return options.padding == "valid" or not any(int(amount) for amount in options.padding)


def _across_groups(block: Tensor, groups: int) -> Tensor:
    """(outputs, inputs / groups) -> (outputs, inputs), zero or False outside the groups."""
    return block if groups == 1 else torch.block_diag(*block.chunk(groups)).to(block.dtype)
