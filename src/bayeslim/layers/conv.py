"""Bayesian convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from bayeslim.layers.base import BayesLayer, filled
from bayeslim.layers.initial import he_normal
from bayeslim.ops import ConvOp, ConvTransposeOp, swap_channels

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]

Size = int | Sequence[int]


class _Conv(BayesLayer):
    """A convolution with a posterior over its kernel.

    Means are drawn from `N(0, 2 / fan_in)`, the bias starts at zero; options mean what they mean in
    torch. Local reparameterisation draws independent noise per position (fine for training);
    `predict` samples kernels.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: size of the kernel.
        stride: stride.
        padding: zero padding, or "same" / "valid".
        dilation: spacing of the kernel.
        groups: blocks of channels that do not see each other.
        bias: whether to add a bias.
        padding_mode: "zeros", "reflect", "replicate" or "circular".
        device: where the parameters live.
        dtype: their floating type.
        **bayes: `posterior`, `prior`, `estimator`, `bias_posterior`, `bias_prior` of `BayesLayer`.

    Shape:
        (batch, in_channels, *positions) -> (batch, out_channels, *positions')

    Example:
        >>> layer = Conv2d(3, 8, 3, padding=1)
        >>> layer(torch.randn(2, 3, 16, 16)).shape
        torch.Size([2, 8, 16, 16])
    """

    plain_type: ClassVar[type[_ConvNd]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **bayes: Any,
    ) -> None:
        options = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "padding_mode": padding_mode,
        }
        self._init_fresh(in_channels, out_channels, kernel_size, options, bias, device, dtype, bayes)

    def _init_fresh(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        options: dict[str, Any],
        bias: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        bayes: dict[str, Any],
    ) -> None:
        """Let torch check and normalise the options on a layer without storage, then draw."""
        with torch.device("meta"):
            plain: Any = self.plain_type
            plain = plain(in_channels, out_channels, kernel_size, bias=bias, **options)
        shape = out_channels, in_channels // plain.groups, *plain.kernel_size
        weight = he_normal(*shape, device=device, dtype=dtype)
        zero = weight.new_zeros(out_channels) if bias else None
        super().__init__(self._op(plain), weight, zero, **bayes)

    @classmethod
    def from_torch(cls, plain: _ConvNd, **bayes: Any) -> Self:
        """Give the kernel of a plain torch layer a posterior centred on it."""
        transposed = isinstance(plain, _ConvTransposeNd)
        weight = swap_channels(plain.weight, plain.groups) if transposed else plain.weight
        return cls.around(cls._op(plain), weight, plain.bias, **bayes)

    def to_torch(self) -> _ConvNd:
        """The plain torch layer with the posterior mean as its kernel."""
        weight, bias = self.mean_tensors()
        names = ("stride", "padding", "dilation", "groups", "padding_mode")
        options = {name: getattr(self, name) for name in (*names, *(("output_padding",) if self.transposed else ()))}
        with torch.device("meta"):
            kind: Any = self.plain_type
            plain = kind(self.in_channels, self.out_channels, self.kernel_size, bias=bias is not None, **options)
        return filled(plain, swap_channels(weight, self.groups).contiguous() if self.transposed else weight, bias)

    @property
    def in_channels(self) -> int:
        """Channels of the input."""
        return self.weight.shape[1] * self.op.groups

    @property
    def out_channels(self) -> int:
        """Channels of the output."""
        return self.weight.shape[0]

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """Size of the kernel along every axis."""
        return tuple(self.weight.shape[2:])

    @property
    def stride(self) -> tuple[int, ...]:
        """Stride along every axis."""
        return cast(ConvOp, self.op).stride

    @property
    def padding(self) -> tuple[int, ...] | str:
        """Padding along every axis, or "same" / "valid"."""
        return cast(ConvOp, self.op).padding

    @property
    def dilation(self) -> tuple[int, ...]:
        """Spacing of the kernel along every axis."""
        return cast(ConvOp, self.op).dilation

    @property
    def groups(self) -> int:
        """Blocks of channels that do not see each other."""
        return self.op.groups

    @property
    def padding_mode(self) -> str:
        """What is put around the input."""
        return cast(ConvOp, self.op).padding_mode

    @property
    def transposed(self) -> bool:
        """Whether this is a transposed convolution."""
        return isinstance(self.op, ConvTransposeOp)

    @property
    def output_padding(self) -> tuple[int, ...]:
        """What a transposed convolution adds to one side of its output; zeros elsewhere."""
        op = cast(ConvOp, self.op)
        return op.output_padding if isinstance(op, ConvTransposeOp) else (0,) * op.dimensions

    @staticmethod
    def _op(plain: _ConvNd) -> ConvOp:
        options: dict[str, Any] = {
            "dimensions": len(plain.kernel_size),
            "stride": plain.stride,
            "padding": plain.padding,
            "dilation": plain.dilation,
            "groups": plain.groups,
            "padding_mode": plain.padding_mode,
        }
        if isinstance(plain, _ConvTransposeNd):
            return ConvTransposeOp(**options, output_padding=plain.output_padding)
        return ConvOp(**options)


class _ConvTranspose(_Conv):
    """A transposed convolution with a posterior over its kernel; options as in torch.

    The posterior keeps its weight as `(out, in / groups, *kernel)`, as every layer here does.

    Example:
        >>> up = ConvTranspose2d(3, 8, 3, stride=2)
        >>> up(torch.randn(2, 3, 16, 16), output_size=[34, 34]).shape
        torch.Size([2, 8, 34, 34])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **bayes: Any,
    ) -> None:
        options = {
            "stride": stride,
            "padding": padding,
            "output_padding": output_padding,
            "dilation": dilation,
            "groups": groups,
        }
        self._init_fresh(in_channels, out_channels, kernel_size, options, bias, device, dtype, bayes)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Apply the estimator.

        Args:
            input: as in torch.
            output_size: sizes of the output along its positions, or of all its axes, where the stride leaves a
                choice; what `output_padding` gives when None.
        """
        if output_size is None:
            return super().forward(input)
        op = cast(ConvTransposeOp, self.op)
        sizes = op.stride, op.padding, self.kernel_size, op.dimensions, op.dilation
        extra = cast(Any, _ConvTransposeNd)._output_padding(self, input, list(output_size), *sizes)
        return self.estimator(self.weight, replace(op, output_padding=tuple(extra)), input, self.bias)


class Conv1d(_Conv):
    """A Bayesian convolution over 1 axis; options as in `torch.nn.Conv1d`, then `BayesLayer`'s."""

    plain_type = nn.Conv1d


class Conv2d(_Conv):
    """A Bayesian convolution over 2 axes; options as in `torch.nn.Conv2d`, then `BayesLayer`'s."""

    plain_type = nn.Conv2d


class Conv3d(_Conv):
    """A Bayesian convolution over 3 axes; options as in `torch.nn.Conv3d`, then `BayesLayer`'s."""

    plain_type = nn.Conv3d


class ConvTranspose1d(_ConvTranspose):
    """A Bayesian transposed convolution; options as in `torch.nn.ConvTranspose1d`, then `BayesLayer`'s."""

    plain_type = nn.ConvTranspose1d


class ConvTranspose2d(_ConvTranspose):
    """A Bayesian transposed convolution; options as in `torch.nn.ConvTranspose2d`, then `BayesLayer`'s."""

    plain_type = nn.ConvTranspose2d


class ConvTranspose3d(_ConvTranspose):
    """A Bayesian transposed convolution; options as in `torch.nn.ConvTranspose3d`, then `BayesLayer`'s."""

    plain_type = nn.ConvTranspose3d
