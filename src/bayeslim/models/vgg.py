"""The VGG-like network of the sparsification literature."""

from __future__ import annotations

from torch import nn

__all__ = ["vgg_like"]

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of the convolutions of each stage; 2x2 max-pooling ends a stage."""

EPS = 1e-3
"""Of every batch normalisation (the authors' code; torch's default is 1e-5)."""


def vgg_like(classes: int = 10, width: float = 1.0, dropout: bool = True) -> nn.Sequential:
    """The VGG-like network for 32x32 images: 13 convolutions, fc 512, fc classes.

    conv-BN-ReLU 64, 64, M, 128, 128, M, 256 x 3, M, 512 x 3, M, 512 x 3, M, fc 512-BN-ReLU, fc, where M is
    2x2 max-pooling and every convolution is 3x3 with padding 1. Dropout: 0.3 after the first convolution,
    0.4 after each convolution that neither starts the network nor ends a stage, 0.5 before the last fc
    (Molchanov et al. 2017, the authors' code). 14 977 728 weights without biases.

    The authors pre-train with dropout and start Sparse VD without it from those weights: both variants
    have the same state_dict keys. A bias that a batch normalisation would cancel is left out.

    Args:
        classes: number of outputs.
        width: multiplies every width, rounded down; the authors' default is 0.5.
        dropout: whether the dropout layers drop; without, each is an `nn.Identity`.

    Shape:
        (batch, 3, 32, 32) -> (batch, classes)

    Example:
        >>> vgg_like(width=0.25)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    if not 1 / 64 <= width < float("inf"):
        raise ValueError(f"`width` must be at least 1/64 (one channel) and finite, got {width}: pass e.g. 1.0")

    def drop(rate: float) -> nn.Module:
        return nn.Dropout(rate) if dropout else nn.Identity()

    modules: list[nn.Module] = []
    channels = 3
    for stage, widths in enumerate(STAGES):
        for position, base in enumerate(widths):
            out = int(base * width)
            modules.extend([nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out, EPS), nn.ReLU()])
            if position < len(widths) - 1:
                modules.append(drop(0.3 if stage == 0 else 0.4))
            channels = out
        modules.append(nn.MaxPool2d(2))
    hidden = int(512 * width)
    return nn.Sequential(
        *modules,
        nn.Flatten(),
        nn.Linear(channels, hidden, bias=False),
        nn.BatchNorm1d(hidden, EPS),
        nn.ReLU(),
        drop(0.5),
        nn.Linear(hidden, classes),
    )
