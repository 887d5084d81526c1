"""The convolutional network of the k-tied Normal paper."""

from __future__ import annotations

from torch import nn

from bayeslim.models.mlp import mlp

__all__ = ["cnn_k_tied"]


def cnn_k_tied(classes: int = 100) -> nn.Sequential:
    """The CIFAR-100 network conv 32, conv 64, fc 512, fc classes, with ReLU after all but the last.

    5x5 convolutions that keep the size, each followed by ReLU and 2x2 max-pooling (Swiatkowski et al.
    2020, figure 6). The paper says 3x3 kernels, but only 5x5 ones give its count: twice the 2 202 660
    parameters, all mean-field, are 4 405 320.

    Args:
        classes: number of outputs.

    Shape:
        (batch, 3, 32, 32) -> (batch, classes)

    Example:
        >>> cnn_k_tied()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *mlp([4096, 512, classes]),
    )
