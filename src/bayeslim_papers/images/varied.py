"""Images as bytes, which become varied, standardised batches on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader

import bayeslim as bl
from bayeslim.data import ImageData

__all__ = ["Images", "Splits", "load_cifar10", "load_mnist", "made_images"]

CIFAR10 = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Mean and deviation of the red, green and blue of CIFAR-10's training pixels, as in the code of arXiv 2210.12957."""


@dataclass(frozen=True)
class Images:
    """Labelled images on one device.

    Pixels that are too many for it may lie elsewhere, in a file that is mapped into memory for one.

    Args:
        pixels: (count, height, width, channels), bytes.
        labels: (count,), integers, on the device.
        centre: (channels,), subtracted from pixels in [0, 1].
        spread: (channels,), by which they are then divided.
        padding: black pixels around an image, out of which `varied` cuts one of the old size at a random place.
        mirrored: whether `varied` mirrors half of the images.
        crop: side of the square that `varied` cuts out at a random place, `plain` in the middle; 0 takes all.

    Example:
        >>> x, y = images.varied(torch.arange(128, device=images.labels.device))
    """

    pixels: Tensor
    labels: Tensor
    centre: Tensor
    spread: Tensor
    padding: int = 0
    mirrored: bool = False
    crop: int = 0

    def __post_init__(self) -> None:
        """Refuse what does not fit."""
        if self.crop > min(self.pixels.shape[1:3]):
            raise ValueError(f"`crop` must be 0, or no larger than an image, got {self.crop}")

    def __len__(self) -> int:
        """The number of images."""
        return len(self.labels)

    @property
    def device(self) -> torch.device:
        """Where batches lie."""
        return self.labels.device

    def plain(self) -> tuple[Tensor, Tensor]:
        """All images (count, channels, height, width), channels last, as they are, and their labels."""
        pixels = self.pixels
        if self.crop:
            top, left = ((side - self.crop) // 2 for side in pixels.shape[1:3])
            pixels = pixels[:, top : top + self.crop, left : left + self.crop]
        return self._standardised(pixels.to(self.device)), self.labels

    def varied(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The images of these rows, each cropped and mirrored at random, channels last, and their labels."""
        top, left = self.pixels.shape[1:3]
        height, width = self.crop or top, self.crop or left
        down, along = (torch.arange(size, device=rows.device).expand(len(rows), -1) for size in (height, width))
        if self.mirrored:
            mirrored = torch.rand(len(rows), 1, device=rows.device) < 0.5
            along = torch.where(mirrored, width - 1 - along, along)
        down, along = (
            places + torch.randint(-self.padding, spare + self.padding + 1, (len(rows), 1), device=rows.device)
            for places, spare in ((down, top - height), (along, left - width))
        )
        inside = ((down >= 0) & (down < top))[:, :, None] & ((along >= 0) & (along < left))[:, None]
        places = (rows[:, None, None], down.clamp(0, top - 1)[:, :, None], along.clamp(0, left - 1)[:, None])
        pixels = self.pixels[tuple(place.to(self.pixels.device) for place in places)].to(rows.device)
        return self._standardised(pixels * inside[..., None]), self.labels[rows]

    def loader(self, batch_size: int) -> DataLoader[Any]:
        """Varied images in a random order, in whole batches: the few that are left over differ from epoch to epoch.

        Raises:
            ValueError: if there are fewer images than a batch.
        """
        if batch_size > len(self):
            raise ValueError(f"`batch_size` must be at most {len(self)}, the number of images, got {batch_size}")
        rows: Any = range(len(self))
        return DataLoader(
            rows,
            batch_size,
            shuffle=True,
            drop_last=True,
            collate_fn=lambda chosen: self.varied(torch.tensor(chosen, device=self.device)),
        )

    def _standardised(self, pixels: Tensor) -> Tensor:
        return ((pixels.float() / 255 - self.centre) / self.spread).permute(0, 3, 1, 2)


class Splits(NamedTuple):
    """The images of an experiment."""

    train: Images
    test: Images


def load_cifar10(root: Path | None, device: str) -> Splits:
    """CIFAR-10, standardised by channel; training images are cropped with a border of 4 and mirrored."""
    train, test = (_as_bytes(bl.data.cifar10(split, root=root), *CIFAR10, device) for split in ("train", "test"))
    return Splits(replace(train, padding=4, mirrored=True), test)


def load_mnist(root: Path | None, device: str) -> Splits:
    """MNIST in [0, 1], not varied."""
    return Splits(*(_as_bytes(bl.data.mnist(split, root=root), (0.0,), (1.0,), device) for split in ("train", "test")))


def made_images(
    size: int, channels: int, counts: tuple[int, int], device: str, *, classes: int = 4, crop: int = 0
) -> Splits:
    """Made-up training and test images of `size` pixels a side: each class has its own colours of the rows, plus noise.

    Without `crop` training images get a border of 1.
    """
    generator = torch.Generator().manual_seed(0)
    colours = torch.randint(40, 216, (classes, size, 1, channels), generator=generator)

    def split(count: int) -> Images:
        y = torch.randint(classes, (count,), generator=generator)
        x = colours[y] + 15 * torch.randn(count, size, size, channels, generator=generator)
        half = torch.full((channels,), 0.5, device=device)
        return Images(x.clamp(0, 255).byte().to(device), y.to(device), half, half, crop=crop)

    train, test = map(split, counts)
    return Splits(replace(train, padding=0 if crop else 1, mirrored=True), test)


def _as_bytes(data: ImageData, centre: Sequence[float], spread: Sequence[float], device: str) -> Images:
    pixels = (255 * data.x).round().byte().permute(0, 2, 3, 1).contiguous()
    first, second = (torch.tensor(value, device=device) for value in (centre, spread))
    return Images(pixels.to(device), data.y.to(device), first, second)
