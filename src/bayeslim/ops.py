"""The operations a Bayesian layer can apply: maps that are linear in their weight.

Every op uses one weight layout, ``(out, in / groups, *kernel)``, whatever torch stores for the same
layer. Fan-in, factored posteriors, pruning of units and the He prior then need no special cases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from bayeslim.kernels import linear

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class Op(ABC):
    """A map `y = op(x, W, b)` that is linear in the weight `W` and adds the bias `b`.

    Linearity gives the variance of the output under independent weights for free:
    `Var[op(x, W)] = op(squared(x), Var[W])`.
    """

    groups: int = 1
    numeric_input: ClassVar[bool] = True
    """Whether the input holds numbers to multiply; False for indices, which have no signs or squares."""
    is_product: ClassVar[bool] = False
    """Whether it is `x W^T + b` and nothing else, which kernels may compute in a way of their own."""

    @abstractmethod
    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the map; `weight` has the layout `(out, in / groups, *kernel)`."""

    @property
    def channel_axis(self) -> int:
        """The axis of the input that holds its channels."""
        return -1

    @abstractmethod
    def mix(self, features: Tensor, coefficients: Tensor) -> Tensor:
        """Combine channels position by position.

        Args:
            features: output of this op with `groups * P` output channels.
            coefficients: `(out, P)`; output channel `j` combines the `P` features of its group.
        """

    @abstractmethod
    def per_channel(self, values: Tensor) -> Tensor:
        """Shape `(out,)` values so that they broadcast against an output of this op."""

    @abstractmethod
    def random_signs(self, like: Tensor) -> Tensor:
        """Draw independent signs, one per example and channel of `like`, broadcastable to it."""

    def repeats_inputs(self, x: torch.Size, weight: torch.Size) -> bool:
        """Whether one output can see one input element several times, as copies made by padding."""
        return False

    @abstractmethod
    def diagonal(self, weight: Tensor) -> Tensor:
        """How much each input element counts in the output element at its own place.

        For maps whose output has the shape of their input; broadcasts against it.
        """

    def squared(self, x: Tensor) -> Tensor:
        """The input of the variance path, see the class docstring."""
        return x.square()

    def features(self, x: Tensor, basis: Tensor) -> Tensor:
        """Apply the `P` filters of `basis` (P, in / groups, *kernel) to every group of `x`."""
        return self(x, basis.repeat(self.groups, *(1 for _ in basis.shape[1:])))


def _signs(shape: list[int], like: Tensor) -> Tensor:
    return torch.randint(0, 2, shape, device=like.device, dtype=like.dtype) * 2 - 1


@dataclass(frozen=True)
class LinearOp(Op):
    """`y = x W^T + b` over the last axis of `x`."""

    is_product: ClassVar[bool] = True

    def __init_subclass__(cls, **options: object) -> None:
        """Say that a class derived from this one computes something else."""
        super().__init_subclass__(**options)
        cls.is_product = False

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the map to `x` of shape (..., in)."""
        return linear(x, weight, bias)

    def mix(self, features: Tensor, coefficients: Tensor) -> Tensor:
        """See `Op.mix`."""
        return F.linear(features, coefficients)

    def per_channel(self, values: Tensor) -> Tensor:
        """See `Op.per_channel`."""
        return values

    def diagonal(self, weight: Tensor) -> Tensor:
        """See `Op.diagonal`."""
        return weight.diagonal()

    def random_signs(self, like: Tensor) -> Tensor:
        """See `Op.random_signs`; axes between the first and the last share their signs."""
        shape = list(like.shape)
        shape[1:-1] = [1] * len(shape[1:-1])
        return _signs(shape, like)


@dataclass(frozen=True)
class EmbeddingOp(LinearOp):
    """`y = W[x]` for indices `x`: row `x` of the weight (rows, features), a linear map of one-hot input.

    Rows of `padding_index` give zeros, whatever the weight holds there.
    """

    numeric_input: ClassVar[bool] = False
    padding_index: int | None = None

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Look up the rows `x` (any shape of integers)."""
        if bias is not None:
            raise ValueError("an embedding has no bias")
        rows = F.embedding(x, weight)
        return rows if self.padding_index is None else rows * (x != self.padding_index)[..., None]

    def squared(self, x: Tensor) -> Tensor:
        """The indices themselves: `Var[W[x]] = Var[W][x]`."""
        return x


@dataclass(frozen=True)
class ConvOp(Op):
    """Convolution over the last `dimensions` axes, with torch's meaning of every option."""

    dimensions: int
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int = 1
    padding_mode: str = "zeros"

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the convolution to `x` of shape (batch, in, *positions)."""
        conv, padding = _CONV[self.dimensions], self.padding
        if self.padding_mode != "zeros":
            x = F.pad(x, self._pad_amounts(weight.shape[2:]), mode=self.padding_mode)
            padding = 0
        elif x.device.type == "cpu" and self._sees_all(x.shape, weight.shape):  # two to three times faster there
            flat = F.linear(x.flatten(-self.dimensions - 1), weight.flatten(1), bias)
            return flat.reshape(*flat.shape, *[1] * self.dimensions)
        return conv(x, weight, bias, self.stride, padding, self.dilation, self.groups)

    def _sees_all(self, x: torch.Size, weight: torch.Size) -> bool:
        """Whether the kernel is as large as the input and nothing is added around it: a matrix, then."""
        exact = self.padding == "valid" or (not isinstance(self.padding, str) and not any(self.padding))
        return self.groups == 1 and exact and max(self.dilation) == 1 and x[-self.dimensions :] == weight[2:]

    def mix(self, features: Tensor, coefficients: Tensor) -> Tensor:
        """See `Op.mix`: a 1x1 convolution."""
        weight = coefficients.reshape(*coefficients.shape, *[1] * self.dimensions)
        return _CONV[self.dimensions](features, weight, groups=self.groups)

    def per_channel(self, values: Tensor) -> Tensor:
        """See `Op.per_channel`."""
        return values.reshape(-1, *[1] * self.dimensions)

    def diagonal(self, weight: Tensor) -> Tensor:
        """See `Op.diagonal`: the weight from each channel to itself at the offset that keeps the position."""
        channel = torch.arange(len(weight), device=weight.device)
        amounts = self._pad_amounts(weight.shape[2:])[::-1][1::2]
        offsets = [
            before // step if before % step == 0 and before // step < size else None
            for before, step, size in zip(amounts, self.dilation, weight.shape[2:], strict=True)
        ]
        if None in offsets or any(step != 1 for step in self.stride):
            return weight.new_zeros(())
        return self.per_channel(weight[(channel, channel % weight.shape[1], *offsets)])

    def random_signs(self, like: Tensor) -> Tensor:
        """See `Op.random_signs`; all positions of a channel share one sign."""
        return _signs([*like.shape[: -self.dimensions], *[1] * self.dimensions], like)

    @property
    def channel_axis(self) -> int:
        """The axis before the positions."""
        return -self.dimensions - 1

    def repeats_inputs(self, x: torch.Size, weight: torch.Size) -> bool:
        """True for reflecting and replicating padding, and for a kernel that reaches around a circle."""
        spans = [step * (size - 1) for step, size in zip(self.dilation, weight[2:], strict=True)]
        around = any(span >= length for span, length in zip(spans, x[-self.dimensions :], strict=True))
        return self.padding_mode in ("reflect", "replicate") or (self.padding_mode == "circular" and around)

    def _pad_amounts(self, kernel: torch.Size) -> list[int]:
        """Amounts for `F.pad`, last axis first, as (left, right) pairs."""
        if isinstance(self.padding, str):
            totals = [d * (k - 1) if self.padding == "same" else 0 for d, k in zip(self.dilation, kernel, strict=True)]
            pairs = [(total // 2, total - total // 2) for total in totals]
        else:
            pairs = [(amount, amount) for amount in self.padding]
        return [amount for pair in reversed(pairs) for amount in pair]


@dataclass(frozen=True)
class ConvTransposeOp(ConvOp):
    """Transposed convolution, its weight kept as `(out, in / groups, *kernel)`."""

    output_padding: tuple[int, ...] = ()

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Apply the transposed convolution to `x` of shape (batch, in, *positions)."""
        conv = _CONV_TRANSPOSE[self.dimensions]
        weight = swap_channels(weight, self.groups)
        if isinstance(self.padding, str):
            raise ValueError(f"`padding` of a transposed convolution must be numbers, got {self.padding!r}")
        options = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return conv(x, weight, bias, *options)


def swap_channels(weight: Tensor, groups: int) -> Tensor:
    """Turn torch's transposed layout `(in, out / groups, *kernel)` into ours, and back.

    The swap inside each group is its own inverse.
    """
    return weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
