"""Residual networks, for images of 32x32 and of 224x224 pixels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["BasicBlock", "Bottleneck", "PreActivationBlock", "resnet18", "resnet34", "resnet50", "resnet_k_tied"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: `relu(BN(conv(relu(BN(conv(x))))) + shortcut(x))`.

    The shortcut is the identity, or a 1x1 convolution with BN where the shape changes
    (He et al. 2016, "Deep residual learning", option B).

    Args:
        channels: channels of the input.
        out: channels of the output.
        stride: of the first convolution and the shortcut.

    Shape:
        (batch, channels, height, width) -> (batch, out, height / stride, width / stride)

    Example:
        >>> BasicBlock(8, 16, stride=2)(torch.zeros(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])
    """

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.shortcut = _shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        hidden = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(torch.add(self.norm2(self.conv2(hidden)), self.shortcut(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, narrow in the middle, and a shortcut as in `BasicBlock`.

    The stride is that of the 3x3 convolution (Goyal et al. 2017 and torchvision; He et al. 2016 had it in the first).

    Args:
        channels: channels of the input.
        middle: channels of the first two convolutions; the output has four times as many.
        stride: of the second convolution and the shortcut.

    Shape:
        (batch, channels, height, width) -> (batch, 4 * middle, height / stride, width / stride)

    Example:
        >>> Bottleneck(8, 4, stride=2)(torch.zeros(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])
    """

    def __init__(self, channels: int, middle: int, stride: int = 1) -> None:
        super().__init__()
        out = 4 * middle
        self.conv1 = nn.Conv2d(channels, middle, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out)
        self.shortcut = _shortcut(channels, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        hidden = torch.relu(self.norm1(self.conv1(x)))
        hidden = torch.relu(self.norm2(self.conv2(hidden)))
        return torch.relu(torch.add(self.norm3(self.conv3(hidden)), self.shortcut(x)))


class PreActivationBlock(nn.Module):
    """The block of TensorFlow Probability's `bayesian_resnet`: `h = relu(BN(x))`, then
    `conv(relu(BN(conv(h)))) + projection(h)`.

    The projection is always there, even where the shape stays: the original code compares the channels
    with the image's height. Batch normalisation has Keras' constants (eps 1e-3, running averages that
    move by 0.01). Keras pads a strided convolution only at the far side, torch at both: with stride 2
    the kernels sit one pixel to the left and above.

    Args:
        channels: channels of the input.
        out: channels of the output.
        stride: of the first convolution and the projection.

    Shape:
        (batch, channels, height, width) -> (batch, out, height / stride, width / stride)

    Example:
        >>> PreActivationBlock(8, 16, stride=2)(torch.zeros(2, 8, 6, 6)).shape
        torch.Size([2, 16, 3, 3])
    """

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.norm1 = _keras_norm(channels)
        self.projection = nn.Conv2d(channels, out, 1, stride)
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1)
        self.norm2 = _keras_norm(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block."""
        active = torch.relu(self.norm1(x))
        hidden = torch.relu(self.norm2(self.conv1(active)))
        return torch.add(self.conv2(hidden), self.projection(active))


def resnet18(classes: int = 10, width: int = 64) -> nn.Sequential:
    """ResNet-18 for small images: a 3x3 stem without pooling, then [2, 2, 2, 2] basic blocks.

    conv 3x3-BN-ReLU; stages of `width` x (1, 2, 4, 8) channels with strides 1, 2, 2, 2; global average;
    linear (He et al. 2016, in the CIFAR form that csgmcmc and Ke & Fan 2022 use). 11 173 962 parameters.

    Args:
        classes: number of outputs.
        width: channels of the first stage.

    Shape:
        (batch, 3, height, width) -> (batch, classes); meant for 32x32, works for any size

    Example:
        >>> resnet18(width=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return _resnet((2, 2, 2, 2), classes, width)


def resnet34(classes: int = 10, width: int = 64) -> nn.Sequential:
    """ResNet-34 for small images: `resnet18` with [3, 4, 6, 3] basic blocks.

    The network of Ke & Fan 2022 for CIFAR-100; 21 282 122 parameters for 10 classes.

    Args:
        classes: number of outputs.
        width: channels of the first stage.

    Shape:
        (batch, 3, height, width) -> (batch, classes); meant for 32x32, works for any size

    Example:
        >>> resnet34(width=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return _resnet((3, 4, 6, 3), classes, width)


def resnet50(classes: int = 1000, width: int = 64) -> nn.Sequential:
    """ResNet-50 for ImageNet: a 7x7 stem and pooling, each of stride 2, then [3, 4, 6, 3] bottlenecks.

    Stages of `width` x (4, 8, 16, 32) channels with strides 1, 2, 2, 2; global average; linear (He et al. 2016). The
    network of Ke & Fan 2022 for ImageNet; 25 557 032 parameters.

    Args:
        classes: number of outputs.
        width: channels of the stem.

    Shape:
        (batch, 3, height, width) -> (batch, classes); meant for 224x224, works for any size

    Example:
        >>> resnet50(classes=5, width=4)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 5])
    """
    blocks, channels = _stages((3, 4, 6, 3), width, Bottleneck, 4)
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            stem=nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
            norm=nn.BatchNorm2d(width),
            relu=nn.ReLU(),
            shrink=nn.MaxPool2d(3, 2, padding=1),
            blocks=blocks,
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(channels, classes),
        )
    )


def resnet_k_tied(classes: int = 10) -> nn.Sequential:
    """The residual network of the k-tied Normal paper: four pre-activation blocks, nine 3x3 convolutions.

    conv 3x3 64; blocks of 64, 128, 256, 512 channels with strides 1, 2, 2, 2; BN-ReLU, average over 4x4,
    linear (Swiatkowski et al. 2020, table 5; the code is TensorFlow Probability's `bayesian_resnet`). The
    paper says ResNet-18, its parameter counts say this: 4 901 568 kernel weights, 2 954 biases and 1 984
    normalised channels, so `2 * kernels + biases + 4 * channels = 9 814 026` with mean-field kernels.

    Args:
        classes: number of outputs.

    Shape:
        (batch, 3, 32, 32) -> (batch, classes)

    Example:
        >>> resnet_k_tied()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            stem=nn.Conv2d(3, 64, 3, padding=1),
            blocks=nn.Sequential(
                PreActivationBlock(64, 64),
                PreActivationBlock(64, 128, stride=2),
                PreActivationBlock(128, 256, stride=2),
                PreActivationBlock(256, 512, stride=2),
            ),
            norm=_keras_norm(512),
            relu=nn.ReLU(),
            pool=nn.AvgPool2d(4),
            flatten=nn.Flatten(),
            head=nn.Linear(512, classes),
        )
    )


def _resnet(depths: Sequence[int], classes: int, width: int) -> nn.Sequential:
    blocks, channels = _stages(depths, width, BasicBlock, 1)
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            stem=nn.Conv2d(3, width, 3, padding=1, bias=False),
            norm=nn.BatchNorm2d(width),
            relu=nn.ReLU(),
            blocks=blocks,
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            head=nn.Linear(channels, classes),
        )
    )


def _stages(
    depths: Sequence[int], width: int, block: type[BasicBlock] | type[Bottleneck], widening: int
) -> tuple[nn.Sequential, int]:
    """Blocks of stages, each of twice the channels and half the size of the one before; and the channels at the end."""
    blocks: list[nn.Module] = []
    channels = width
    for stage, depth in enumerate(depths):
        for position in range(depth):
            blocks.append(block(channels, width * 2**stage, 2 if stage > 0 and position == 0 else 1))
            channels = widening * width * 2**stage
    return nn.Sequential(*blocks), channels


def _shortcut(channels: int, out: int, stride: int) -> nn.Module:
    """The identity, or a projection where the shape changes."""
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


def _keras_norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)
