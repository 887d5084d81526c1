"""A batch of vectors known by their mean and their covariance."""

from __future__ import annotations

import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian

__all__ = ["JointGaussian", "block_diagonal", "congruence"]


class JointGaussian:
    """The mean of every example's features and the covariance between them, examples apart.

    The flattened features of an example are cut into `G` groups of `d` neighbours. Groups are independent of each
    other: `G = 1` is a full covariance, `G = channels` keeps one covariance per feature map.

    Args:
        mean: (B, *shape), with `D = G d` features per example.
        blocks: (B, G, d, d), the covariance of each group.

    Example:
        >>> x = JointGaussian(torch.zeros(1, 2), torch.eye(2).view(1, 1, 2, 2))
        >>> x.covariance.shape
        torch.Size([1, 2, 2])
    """

    def __init__(self, mean: Tensor, blocks: Tensor) -> None:
        features = mean[:1].numel()
        fits = blocks.ndim == 4 and blocks.shape[0] == len(mean) and blocks.shape[2] == blocks.shape[3]
        if not fits or blocks.shape[1] * blocks.shape[2] != features:
            raise ValueError(
                f"`blocks` must have the shape ({len(mean)}, G, d, d) with G d = {features} for a mean of shape "
                f"{tuple(mean.shape)}, got {tuple(blocks.shape)}"
            )
        self.mean, self.blocks = mean, blocks

    @property
    def covariance(self) -> Tensor:
        """The covariance of the flattened features, (B, D, D), zero between groups."""
        return self.blocks[:, 0] if self.blocks.shape[1] == 1 else block_diagonal(self.blocks)[:, 0]

    @property
    def variance(self) -> Tensor:
        """The variance of every feature, in the shape of the mean."""
        return self.blocks.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def shape(self) -> torch.Size:
        """The shape of the mean."""
        return self.mean.shape

    def marginals(self) -> Gaussian:
        """Mean and variance alone."""
        return Gaussian(self.mean, self.variance.clamp_min(0.0))  # rounding may leave less

    def __repr__(self) -> str:
        return f"JointGaussian(shape={tuple(self.shape)}, blocks={tuple(self.blocks.shape)})"


def block_diagonal(blocks: Tensor) -> Tensor:
    """Join the groups (B, G, d, d) into one, (B, 1, G d, G d), with zeros between them."""
    batch, groups, size, _ = blocks.shape
    spread = torch.diag_embed(blocks.movedim(1, -1))  # (B, d, d, G, G)
    return spread.permute(0, 3, 1, 4, 2).reshape(batch, 1, groups * size, groups * size)


def congruence(matrix: Tensor, blocks: Tensor, groups: int) -> Tensor:
    """`M C M^T` for a block-diagonal `C`, of which `groups` diagonal blocks are kept.

    Args:
        matrix: `M`, (outputs, inputs).
        blocks: `C`, (B, G, d, d) with `G d` inputs.
        groups: of the result; 1 keeps all of it.

    Returns:
        (B, groups, outputs / groups, outputs / groups).
    """
    # g, o: group and feature of the output; h, i: of the input.
    parts = matrix.reshape(groups, -1, *blocks.shape[1:3])
    half = torch.einsum("gohi,bhij->bgohj", parts, blocks)
    return torch.einsum("bgohj,gqhj->bgoq", half, parts)
