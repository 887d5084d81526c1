"""Vision transformers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayeslim.models.transformer import encoder_layer, gelu

__all__ = ["ViT", "image_positions", "vit_s16", "vit_small"]


class ViT(nn.Module):
    """A plain vision transformer: patches plus fixed positions, pre-norm blocks, mean, LayerNorm, linear.

    The patch embedding is a convolution whose stride is its size; each block is
    `x + attention(LayerNorm(x))`, then `x + linear(gelu(linear(LayerNorm(x))))`; there is no class token
    (SimpleViT: Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k"). Queries, keys and values
    have no bias, as in the lucidrains code that Epifano et al. started from; there the output projection
    has none either and a head is 64 wide whatever `dim`, here it is `dim / heads`.

    Args:
        image: height and width of the images.
        patch: height and width of a patch; divides `image`.
        channels: channels of the images.
        dim: width of a token; a multiple of 4 and of `heads`, at least 8.
        depth: number of blocks.
        heads: attention heads.
        hidden: width of the feed-forward.
        classes: number of outputs.
        dropout: rate after each attention and each feed-forward.
        qkv_bias: whether queries, keys and values have biases.

    Shape:
        (batch, channels, image, image) or (channels, image, image) -> (batch, classes) or (classes,)

    Example:
        >>> ViT(dim=16, depth=1, heads=2, hidden=32)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    positions: Tensor

    def __init__(
        self,
        image: int = 28,
        patch: int = 7,
        channels: int = 1,
        dim: int = 64,
        depth: int = 6,
        heads: int = 8,
        hidden: int = 128,
        classes: int = 10,
        dropout: float = 0.0,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        if image % patch:
            raise ValueError(f"`patch` must divide `image`, got {patch} and {image}: pass e.g. patch=7 for image=28")
        self.patches = nn.Conv2d(channels, dim, patch, stride=patch)
        self.register_buffer("positions", image_positions(image // patch, image // patch, dim))
        self.layers = nn.ModuleList(
            encoder_layer(
                dim,
                heads,
                hidden,
                activation=gelu,
                norm_first=True,
                attention_dropout=dropout,
                feedforward_dropout=dropout,
                qkv_bias=qkv_bias,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images."""
        tokens = torch.transpose(torch.flatten(self.patches(x), -2), -2, -1)
        tokens = torch.add(tokens, self.positions)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.head(self.norm(torch.mean(tokens, -2)))


def vit_small() -> ViT:
    """The MNIST transformer of the VDP++ code: 16 patches of 7x7, dim 64, 6 blocks, 8 heads, hidden 128.

    The code of Epifano et al.; see `ViT` for where its attention differs.

    Shape:
        (batch, 1, 28, 28) -> (batch, 10)

    Example:
        >>> vit_small()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """
    return ViT(image=28, patch=7, channels=1, dim=64, depth=6, heads=8, hidden=128, classes=10)


def vit_s16(classes: int = 1000) -> ViT:
    """ViT-S/16 for ImageNet: 196 patches of 16x16, dim 384, 12 blocks, 6 heads, hidden 1536.

    Sizes of Touvron et al. 2021 (DeiT-S) in the form of Beyer et al. 2022, 21 960 808 parameters. (The
    VDP++ paper names S/16; a script of its authors has patches of 32.)

    Args:
        classes: number of outputs.

    Shape:
        (batch, 3, 224, 224) -> (batch, classes)

    Example:
        >>> vit_s16()(torch.zeros(1, 3, 224, 224)).shape
        torch.Size([1, 1000])
    """
    return ViT(image=224, patch=16, channels=3, dim=384, depth=12, heads=6, hidden=1536, classes=classes)


def image_positions(height: int, width: int, dim: int) -> Tensor:
    """The fixed code of a place in a grid: `sin(x w), cos(x w), sin(y w), cos(y w)`, `dim / 4` columns each.

    `w_i = 10000^(-i / (dim / 4 - 1))` for `i = 0 .. dim / 4 - 1`; column `x` and row `y` start at 0 (Beyer
    et al. 2022 after Chen et al. 2021, MoCo v3).

    Args:
        height: rows of the grid.
        width: columns of the grid.
        dim: length of a code; a multiple of 4, at least 8.

    Returns:
        Tensor (height * width, dim), row by row.

    Example:
        >>> image_positions(4, 4, 64).shape
        torch.Size([16, 64])
    """
    if dim < 8 or dim % 4:
        raise ValueError(f"`dim` must be a multiple of 4 and at least 8, got {dim}: pass e.g. 64")
    count = dim // 4
    frequency = 10000 ** (-torch.arange(count, dtype=torch.float64) / (count - 1))
    column = (torch.arange(width, dtype=torch.float64)[:, None] * frequency).repeat(height, 1)
    row = (torch.arange(height, dtype=torch.float64)[:, None] * frequency).repeat_interleave(width, 0)
    code = torch.cat([torch.sin(column), torch.cos(column), torch.sin(row), torch.cos(row)], 1)
    return code.to(torch.get_default_dtype())
