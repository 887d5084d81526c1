"""Groups of weights that are judged together, in plain linear layers and convolutions, and when one is small."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from bayeslim.checks.networks import check_network

__all__ = ["Group", "PrunableLayer", "check_group", "em_threshold", "prunable_layers"]

Group = Literal["weight", "kernel", "input_unit", "output_unit"]
"""Single weights; the kernel from one input channel to one output channel of a convolution; all weights that leave an
input unit or channel; all that enter an output unit or channel."""


@dataclass(frozen=True)
class PrunableLayer:
    """The weight of a linear layer or convolution, seen as (..., conv groups, outputs, inputs, *kernel).

    Axes are counted from the end, so a stack of networks, whose weights have more axes in front, works alike.
    """

    name: str
    weight: nn.Parameter
    kernel: int
    """Number of kernel axes; 0 for a linear layer."""
    conv_groups: int
    transposed: bool
    """Whether inputs stand before outputs, as torch has it in transposed convolutions."""

    def grouped(self, tensor: Tensor) -> Tensor:
        """A view of a tensor shaped like the weight, in which convolution groups have an axis of their own."""
        return tensor.unflatten(-2 - self.kernel, (self.conv_groups, -1))

    def mean_square(self, weight: Tensor, group: Group) -> Tensor:
        """`mean w^2` over each group, the axes of the group kept with length 1."""
        axes, squares = self._axes(group), self.grouped(weight).square()
        return squares.mean(axes, keepdim=True) if axes else squares

    def size(self, weight: Tensor, group: Group) -> Tensor:
        """How large the weights of each group are, in units of a weight; hard thresholds are its squares.

        Linear layers: the root mean square (eq. 10 of the EM-MCMC paper compares its square). Convolutions: the
        larger of `max w - min w` (eq. 9) and `max |w|`: equal weights far from zero are not small.
        """
        if self.kernel == 0:
            return self.mean_square(weight, group).sqrt()
        axes, grouped = self._axes(group), self.grouped(weight)
        if not axes:
            return grouped.abs()
        top, bottom = grouped.amax(axes, keepdim=True), grouped.amin(axes, keepdim=True)
        return torch.maximum(top - bottom, torch.maximum(top, -bottom))

    def largest(self, size: Tensor) -> Tensor:
        """True at the largest group of the layer (of each network, in a stack), the first of equal ones."""
        flat = size.flatten(-3 - self.kernel)
        return torch.zeros_like(flat, dtype=torch.bool).scatter_(-1, flat.argmax(-1, keepdim=True), True).view_as(size)

    def whole(self, mask: Tensor) -> Tensor:
        """A mask of groups, in the shape of the weight."""
        return mask.expand_as(self.grouped(self.weight)).flatten(-3 - self.kernel, -2 - self.kernel)

    def _axes(self, group: Group) -> tuple[int, ...]:
        """The axes of `grouped` that a group runs over."""
        kernel = tuple(range(-self.kernel, 0))
        outputs, inputs = -2 - self.kernel, -1 - self.kernel
        if self.transposed:
            outputs, inputs = inputs, outputs
        return {
            "weight": (),
            "kernel": kernel,
            "input_unit": (outputs, *kernel),
            "output_unit": (inputs, *kernel),
        }[group]


def prunable_layers(
    model: nn.Module, where: Callable[[str, nn.Module], bool] = lambda name, module: True, *, linear: bool = True
) -> list[PrunableLayer]:
    """The plain linear layers and convolutions of a network, a shared weight once.

    Args:
        model: any network.
        where: leaves a layer out where it returns False for (name, module).
        linear: whether linear layers are wanted.

    Raises:
        ValueError: if there is none.

    Example:
        >>> [layer.name for layer in prunable_layers(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1)))]
        ['0', '2']
    """
    check_network(model, "prune")
    found: dict[int, PrunableLayer] = {}
    for name, module in model.named_modules():
        conv = isinstance(module, _ConvNd)
        if not (conv or (linear and isinstance(module, nn.Linear))) or not where(name, module):
            continue
        layer = PrunableLayer(
            name=name,
            weight=module.weight,  # pyright: ignore[reportArgumentType]
            kernel=len(module.kernel_size) if conv else 0,
            conv_groups=module.groups if conv else 1,
            transposed=module.transposed if conv else False,
        )
        found.setdefault(id(module.weight), layer)
    if not found:
        kinds = "linear layer or convolution" if linear else "convolution, which alone has kernels,"
        raise ValueError(
            f"no layer to prune: `model` has no plain {kinds} that `where` accepts (Bayesian layers are pruned on "
            "their posterior, by bl.prune_)"
        )
    return list(found.values())


def check_group(group: str) -> None:
    """Raise ValueError unless `group` is one."""
    if group not in get_args(Group):
        raise ValueError(f"`group` must be one of {', '.join(map(repr, get_args(Group)))}, got {group!r}")


def em_threshold(
    *, slab_precision: float, spike_precision: float, spike_probability: float = 0.5, group_size: int = 1
) -> float:
    r"""The mean square below which a group of weights belongs to the spike.

    `lambda1 = (ln(delta0 / delta1) + (2 / n) ln(p / (1 - p))) / (delta0 - delta1)`, where n weights of a group are
    N(0, 1 / delta0) with probability p (the spike) and N(0, 1 / delta1) otherwise (the slab): there the two are equally
    likely. In terms of weight decay, `delta = N * decay` for N training examples.

    Args:
        slab_precision: delta1, above 0.
        spike_precision: delta0, above delta1.
        spike_probability: p, in (0, 1).
        group_size: n, 9 for the kernels of a 3 x 3 convolution.

    Returns:
        lambda1, for `SpikeAndSlab(soft_threshold=...)`; not positive if no group belongs to the spike.

    Example:
        >>> em_threshold(slab_precision=25, spike_precision=50, group_size=9)
        0.027725887222397813
    """
    if not 0 < slab_precision < spike_precision < math.inf:
        raise ValueError(
            f"`spike_precision` must exceed `slab_precision` > 0, got {spike_precision} and {slab_precision}"
        )
    if not 0 < spike_probability < 1:
        raise ValueError(f"`spike_probability` must lie in (0, 1), got {spike_probability}: pass e.g. 0.5")
    if group_size < 1:
        raise ValueError(f"`group_size` must be at least 1, got {group_size}")
    odds = math.log(spike_probability / (1 - spike_probability))
    gain = math.log(spike_precision / slab_precision) + 2 / group_size * odds
    return gain / (spike_precision - slab_precision)
