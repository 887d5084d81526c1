"""Autoencoders."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from bayeslim.models.mlp import Activation, mlp

__all__ = ["conv_autoencoder", "dense_autoencoder"]


def dense_autoencoder(
    sizes: Sequence[int] = (784, 256, 32), activations: Activation | Sequence[Activation] = "relu"
) -> nn.Sequential:
    """A fully connected autoencoder: `encoder` through `sizes`, `decoder` back through their mirror image.

    Linear layers with an activation after each but the code and the reconstruction, as Hinton &
    Salakhutdinov 2006. The outputs are raw: logits for a Bernoulli likelihood of pixels in [0, 1], means
    for a Normal one.

    Args:
        sizes: widths from input to code.
        activations: one for all hidden layers, or one per hidden layer of the encoder; see `mlp`.

    Shape:
        (batch, sizes[0]), or any (batch, ...) with as many values -> (batch, sizes[0])

    Example:
        >>> model = dense_autoencoder()
        >>> model(torch.zeros(2, 784)).shape, model.encoder(torch.zeros(2, 784)).shape
        (torch.Size([2, 784]), torch.Size([2, 32]))
    """
    sizes = list(sizes)
    mirrored = activations
    if not (isinstance(activations, str) or callable(activations)):
        activations = list(activations)
        mirrored = activations[::-1]
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            encoder=nn.Sequential(nn.Flatten(), *mlp(sizes, activations)),
            decoder=mlp(sizes[::-1], mirrored),
        )
    )


def conv_autoencoder(code: int = 32, width: int = 16) -> nn.Sequential:
    """A convolutional autoencoder of 28x28 images: strided convolutions down, transposed ones up.

    `encoder`: 3x3 convolutions of stride 2 to `width` x 14 x 14 and `2 width` x 7 x 7 with ReLU, then one
    7x7 convolution to `code` x 1 x 1. `decoder`: the transposed way back, with 4x4 kernels of stride 2,
    which cover every pixel equally often. The outputs are logits (or means, under a Normal likelihood).

    Args:
        code: channels of the code.
        width: channels after the first convolution.

    Shape:
        (batch, 1, 28, 28) or (1, 28, 28) -> the same

    Example:
        >>> conv_autoencoder()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 1, 28, 28])
    """
    return nn.Sequential(
        OrderedDict[str, nn.Module](
            encoder=nn.Sequential(
                nn.Conv2d(1, width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(2 * width, code, 7),
            ),
            decoder=nn.Sequential(
                nn.ConvTranspose2d(code, 2 * width, 7),
                nn.ReLU(),
                nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
                nn.ReLU(),
                nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
            ),
        )
    )
