"""Bayesian convolutions and transposed convolutions in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

import torch
from torch import nn
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
        op = cast(ConvOp, self.op)
        options: dict[str, Any] = {"stride": op.stride, "padding": op.padding, "dilation": op.dilation}
        options |= {"groups": op.groups, "padding_mode": op.padding_mode, "bias": bias is not None}
        if isinstance(op, ConvTransposeOp):
            options["output_padding"] = op.output_padding
        with torch.device("meta"):
            kind: Any = self.plain_type
            plain = kind(weight.shape[1] * op.groups, weight.shape[0], tuple(weight.shape[2:]), **options)
        transposed = isinstance(op, ConvTransposeOp)
        return filled(plain, swap_channels(weight, op.groups).contiguous() if transposed else weight, bias)

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
