"""Covariances through layers that are linear in their input, with certain or uncertain weights, and through pooling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bayeslim.estimators import bias_mean
from bayeslim.full_covariance.joint import JointGaussian, block_diagonal, congruence
from bayeslim.layers.base import BayesLayer
from bayeslim.ops import ConvOp, LinearOp, Op
from bayeslim.posteriors.base import Posterior, product_type

__all__ = ["Value", "Within", "average_pool", "batch_norm", "bayesian", "max_pool", "plain", "reshape"]

Within = Literal["all", "channel"]
Value = Tensor | JointGaussian


def bayesian(layer: BayesLayer, x: Value, within: Within) -> JointGaussian:
    r"""Exact mean and covariance of a layer with independent weights, independent of the input.

    For inputs of mean `m` and covariance `C` and weights of mean `M` and variance `V`, output channel `a` at position
    `p` being `sum_k W_ak x_pk` over the inputs `x_pk` that the kernel sees there (one position for a linear layer):
    `Cov[y_ap, y_bq] = (M C M^T)_{ap,bq} + delta_ab (sum_k V_ak (m_pk m_qk + C_{pk,qk}) + Var[bias_a])`.
    A kernel is shared, so its uncertainty correlates all positions of a channel.

    Args:
        layer: linear or convolutional, of factorised posteriors.
        x: the input.
        within: keep all covariances of a convolution's output, or those within channels.

    Raises:
        TypeError: if a posterior is not factorised.
        ValueError: if a linear layer gets anything but one vector per example.
    """
    for posterior in (layer.weight, layer.bias):
        if isinstance(posterior, Posterior) and not posterior.factorised:
            raise TypeError(
                f"full_covariance needs factorised posteriors, got {type(posterior).__name__}: build the layers with "
                "MeanField, KTied or Multiplicative, or predict by sampling"
            )
    mean_in = x.mean if isinstance(x, JointGaussian) else x
    weight = layer.weight.mean()
    variance = layer.weight.variance().to(product_type(mean_in, weight))
    output = layer.op(mean_in, weight, bias_mean(layer.bias))
    if isinstance(layer.op, ConvOp):
        noise = _kernel_noise(layer.op, x, variance)
    else:
        _check_vectors(mean_in)
        second_moment = mean_in.square() + (x.variance if isinstance(x, JointGaussian) else 0)
        noise = (second_moment @ variance.T)[..., None, None]
    if isinstance(layer.bias, Posterior):
        noise = noise + layer.bias.variance().to(noise.dtype)[:, None, None]
    by_channel = within == "channel" and isinstance(layer.op, ConvOp)
    blocks = noise if by_channel else block_diagonal(noise)
    if isinstance(x, JointGaussian):
        matrix = _matrix(layer.op, weight, mean_in)
        blocks = blocks + congruence(matrix, x.blocks, blocks.shape[1])
    return JointGaussian(output, blocks)


def plain(layer: nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d, x: JointGaussian, within: Within) -> JointGaussian:
    """`M C M^T` for a torch layer with fixed weights `M`."""
    if isinstance(layer, nn.Linear):
        _check_vectors(x.mean)
        return JointGaussian(layer(x.mean), congruence(layer.weight, x.blocks, 1))
    options: dict[str, Any] = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
    op = ConvOp(len(layer.kernel_size), **options, groups=layer.groups, padding_mode=layer.padding_mode)
    groups = layer.out_channels if within == "channel" else 1
    return JointGaussian(layer(x.mean), congruence(_matrix(op, layer.weight, x.mean), x.blocks, groups))


def average_pool(layer: nn.Module, x: JointGaussian, within: Within) -> JointGaussian:
    """Exact: pooling is linear, so it acts on the rows and then on the columns of the covariance."""
    mean = layer(x.mean)
    channels, groups = x.mean.shape[1], x.blocks.shape[1]
    image = channels // groups, *x.mean.shape[2:]  # what one group covers: all channels, or one
    blocks = x.blocks
    for _ in range(2):
        blocks = layer(blocks.reshape(-1, *image)).reshape(*blocks.shape[:3], -1).mT
    return JointGaussian(mean, blocks)


def max_pool(layer: nn.MaxPool2d, x: JointGaussian, within: Within) -> JointGaussian:
    """Co-pooling: the mean's largest entry of every window, and its row and column of the covariance.

    What VDP does; it ignores that another entry may be the largest, which is right only where one stands out.
    """
    options = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode)
    mean, chosen = nn.functional.max_pool2d(x.mean, *options, return_indices=True)
    # torch counts within a channel; a group that holds several needs their offsets.
    channels, groups, size = x.mean.shape[1], *x.blocks.shape[1:3]
    offsets = torch.arange(channels, device=chosen.device) % (channels // groups) * (size * groups // channels)
    index = (chosen.flatten(2) + offsets[:, None]).reshape(len(mean), groups, -1)
    rows = x.blocks.gather(2, index[..., None].expand(-1, -1, -1, size))
    return JointGaussian(mean, rows.gather(3, index[:, :, None].expand(-1, -1, index.shape[2], -1)))


def batch_norm(layer: _BatchNorm, x: JointGaussian, within: Within) -> JointGaussian:
    """Exact in evaluation mode, where normalisation by running statistics is affine."""
    assert layer.running_var is not None
    scale = (layer.running_var + layer.eps).rsqrt() * (1 if layer.weight is None else layer.weight)
    scale = scale.reshape(-1, *[1] * (x.mean.ndim - 2)).expand(x.mean.shape[1:]).reshape(x.blocks.shape[1:3])
    return JointGaussian(layer(x.mean), x.blocks * scale[..., None] * scale[:, None])


def reshape(layer: nn.Module, x: JointGaussian, within: Within) -> JointGaussian:
    """Flatten, and dropout in evaluation mode: the features keep their order, so the covariance stays."""
    mean = layer(x.mean)
    if mean.shape not in (x.shape, x.mean.flatten(1).shape):
        raise ValueError(
            f"full_covariance flattens each example to one vector, but {layer} makes {tuple(x.shape)} "
            f"{tuple(mean.shape)}: use nn.Flatten()"
        )
    return JointGaussian(mean, x.blocks)


def _check_vectors(mean: Tensor) -> None:
    if mean.ndim != 2:
        raise ValueError(
            f"full_covariance of a linear layer needs one vector per example, got inputs of shape "
            f"{tuple(mean.shape)}: put nn.Flatten() before it"
        )


def _matrix(op: Op, weight: Tensor, mean: Tensor) -> Tensor:
    """The op as a matrix (outputs, inputs) on flattened examples."""
    if isinstance(op, LinearOp):
        return weight
    features = mean[0].numel()
    units = torch.eye(features, dtype=weight.dtype, device=weight.device)
    return op(units.view(features, *mean.shape[1:]), weight).flatten(1).T


def _kernel_noise(op: ConvOp, x: Value, variance: Tensor) -> Tensor:
    """`sum_k V_ak E[x_pk x_qk]` for every output channel `a` and pair of positions `p, q`: (B, out, P, P)."""
    mean = (x.mean if isinstance(x, JointGaussian) else x).flatten(2)
    positions = _seen_positions(op, x.shape[2:], variance)
    by_group = variance.flatten(2).unflatten(0, (op.groups, -1))  # (groups, out / groups, in / groups, kernel)
    patches = _with_zero(mean, -1)[..., positions].unflatten(1, (op.groups, -1))
    noise = torch.einsum("gack,bgckp,bgckq->bgapq", by_group, patches, patches)
    if isinstance(x, JointGaussian):
        covariance = _with_zero(_with_zero(_channel_blocks(x), -1), -2).unflatten(1, (op.groups, -1))
        for part, seen in zip(by_group.unbind(-1), positions, strict=True):
            noise = noise + torch.einsum("gac,bgcpq->bgapq", part, covariance[..., seen[:, None], seen])
    return noise.flatten(1, 2)


def _seen_positions(op: ConvOp, size: torch.Size, variance: Tensor) -> Tensor:
    """Which input position each kernel element meets at each output position, from 1 on; 0 is padding.

    A kernel that is 1 at one element copies what that element sees: applied to an image of position numbers, with the
    op's own stride, dilation and padding, it gives their numbers. (kernel elements, output positions)
    """
    kernel = variance.shape[2:]
    units = torch.eye(kernel.numel(), dtype=torch.float64, device=variance.device)
    numbers = torch.arange(1.0, size.numel() + 1, dtype=torch.float64, device=variance.device)
    found = replace(op, groups=1)(numbers.view(1, 1, *size), units.view(-1, 1, *kernel))
    return found[0].flatten(1).round().long()


def _with_zero(values: Tensor, axis: int) -> Tensor:
    """Put a zero before the first entry of an axis: what padding sees."""
    return torch.cat([torch.zeros_like(values.narrow(axis, 0, 1)), values], axis)


def _channel_blocks(x: JointGaussian) -> Tensor:
    """The covariance within each channel, (B, C, P, P)."""
    channels = x.mean.shape[1]
    if x.blocks.shape[1] == channels:
        return x.blocks
    split = x.covariance.unflatten(2, (channels, -1)).unflatten(1, (channels, -1))
    return split.diagonal(dim1=1, dim2=3).movedim(-1, 1)
