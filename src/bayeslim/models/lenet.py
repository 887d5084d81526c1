"""The LeNets of the literature."""

from __future__ import annotations

from torch import nn

from bayeslim.models.mlp import mlp

__all__ = ["lenet5", "lenet5_caffe", "lenet_300_100"]


def lenet_300_100() -> nn.Sequential:
    """The fully connected LeNet 784-300-100-10 with ReLU: 266 200 weights without biases.

    Shape:
        (batch, 1, 28, 28) or (batch, 784) -> (batch, 10)

    Example:
        >>> lenet_300_100()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(nn.Flatten(), *mlp([784, 300, 100, 10]))


def lenet5() -> nn.Sequential:
    """LeNet-5 with its three convolutions 6, 16, 120 and linear layers 84, 10: 61 470 weights.

    5x5 kernels, the first padded by 2, ReLU, 2x2 max-pooling: the network of the VDP++ experiments on MNIST.

    Shape:
        (batch, 1, 28, 28) -> (batch, 10)

    Example:
        >>> lenet5()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 120, 5),
        nn.ReLU(),
        nn.Flatten(),
        *mlp([120, 84, 10]),
    )


def lenet5_caffe() -> nn.Sequential:
    """The convolutional LeNet of Caffe: conv 20, conv 50, fc 500, fc 10: 430 500 weights.

    5x5 kernels without padding, ReLU, 2x2 max-pooling (Molchanov et al. 2017, section 5).

    Shape:
        (batch, 1, 28, 28) -> (batch, 10)

    Example:
        >>> lenet5_caffe()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *mlp([800, 500, 10]),
    )
