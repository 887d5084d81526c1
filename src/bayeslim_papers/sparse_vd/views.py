"""Images as a network may also see them: shifted and turned."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["Data", "shifted", "turned", "varied"]

Data = tuple[Tensor, Tensor]

SHIFTS = tuple(itertools.product((-1, 0, 1), repeat=2))
"""Down and to the right."""


def shifted(images: Tensor) -> Tensor:
    """Nine copies of images (N, ..., height, width), each shifted as `SHIFTS` says: (9 N, ..., height, width).

    Every pixel's least value is the background that moves in: of a centred image, black minus the mean. Borders are
    taken to be background.
    """
    background = images.amin(0)
    ink = images - background
    return torch.cat([ink.roll(shift, (-2, -1)) + background for shift in SHIFTS])


TURNS = (-9.0, -5.0, 5.0, 9.0)
"""Degrees."""


def turned(images: Tensor) -> Tensor:
    """Four copies of images (N, ..., height, width), each turned as `TURNS` says: (4 N, ..., height, width).

    Every pixel's least value is the background; pixels are interpolated.
    """
    background = images.amin(0)
    ink = (images - background).reshape(len(images), -1, *images.shape[-2:])
    angles = torch.tensor(TURNS, dtype=images.dtype, device=images.device).deg2rad()
    parts = [angles.cos(), -angles.sin(), 0 * angles, angles.sin(), angles.cos(), 0 * angles]
    grids = F.affine_grid(torch.stack(parts, 1).view(-1, 2, 3), [len(TURNS), *ink.shape[1:]], align_corners=False)
    copies = [F.grid_sample(ink, grid.expand(len(ink), -1, -1, -1), align_corners=False) for grid in grids]
    return torch.cat([copy.view_as(images) + background for copy in copies])


def varied(images: Tensor, *, shift: bool, turn: bool) -> tuple[Tensor, int]:
    """Images as they are or in all the views asked for, and how many of each there are then."""
    views = [view(images) for view, wanted in ((shifted, shift), (turned, turn)) if wanted]
    if not views:
        return images, 1
    return torch.cat(views), sum(map(len, views)) // len(images)
