"""Images of a user: arrays, tables of pixels and folders of files, as one tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.checks.packages import check_installed
from bayeslim.checks.text import visible
from bayeslim.data.cells import as_numbers
from bayeslim.data.tables import Table, feature_names

__all__ = ["IMAGE_SUFFIXES", "ImageInputs", "class_folders", "image_files", "read_image_files"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")
"""What those files may hold. Pillow would take others by their content, and call Ghostscript for PostScript."""
CHANNELS = (1, 3, 4)
"""How many an array of images may have on its last axis."""
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16B", "I;16L", "I;16N")
"""Pillow's names for pixels without colour; those that begin with I have 16 bits."""
MOST_PIXELS = 2**26
"""Pixels of an image file before it is scaled down; a larger one is refused unread."""


@dataclass(frozen=True)
class ImageInputs:
    """Images of one shape: bytes become [0, 1], then `(value - mean) / std`.

    Attributes:
        shape: (channels, height, width).
        mean: subtracted from every value.
        std: divides it.
        unit: whether values must lie in [0, 1] (bytes are divided by 255).
    """

    shape: tuple[int, int, int]
    mean: float = 0.0
    std: float = 1.0
    unit: bool = True

    @staticmethod
    def fitted(x: Tensor, unit: bool) -> ImageInputs:
        """Statistics of training images (N, channels, height, width); images in [0, 1] stay as they are."""
        channels, height, width = x.shape[1:]
        if unit:
            return ImageInputs((channels, height, width))
        values = x.numpy().astype(np.float64)  # numpy: torch's sums depend on the number of threads
        return ImageInputs((channels, height, width), float(values.mean()), float(values.std()) or 1.0, unit=False)

    def encode(self, x: Tensor) -> Tensor:
        """Prepare images in their own units: (N, channels, height, width), (N, height, width) or (N, pixels)."""
        if x[0].numel() != math.prod(self.shape):
            raise ValueError(
                f"the inputs have shape {tuple(x.shape[1:])}, the network takes images of {self.shape} "
                "(channels, height, width)"
            )
        if not bool(x.isfinite().all()):
            raise ValueError("the images hold NaN or infinite values: correct them or leave them out")
        if self.unit and (float(x.min()) < 0 or float(x.max()) > 1):
            raise ValueError(
                f"pixels must lie in [0, 1], got [{float(x.min()):g}, {float(x.max()):g}]: divide by 255, or store "
                "them as unsigned bytes (uint8)"
            )
        return (x.reshape(-1, *self.shape).float() - self.mean) / self.std

    def encode_table(self, table: Table) -> Tensor:
        """Prepare a table whose columns x0, x1, ... are the values of an image, row by row."""
        names = feature_names(math.prod(self.shape))
        absent = [name for name in names if name not in table.columns]
        if absent:
            odd = [name for name in table.columns if name not in names][:3]
            more = f"; not expected: {', '.join(odd)}" if odd else ""
            raise ValueError(
                f"a table of images {self.shape} needs the columns x0 to {names[-1]}; missing: "
                f"{', '.join(absent[:3])}{' ...' if len(absent) > 3 else ''}{more}"
            )
        values = np.stack([as_numbers(name, table.columns[name]) for name in names], 1)
        if np.isnan(values).any():
            raise ValueError("values are missing among the pixels: fill them in")
        return self.encode(torch.from_numpy(values))

    def to_json(self) -> dict[str, Any]:
        """What `from_json` needs."""
        return {"kind": "images"} | asdict(self)

    @staticmethod
    def from_json(facts: dict[str, Any]) -> ImageInputs:
        """Undo `to_json`."""
        channels, height, width = map(int, facts["shape"])
        if min(channels, height, width) < 1 or not float(facts["std"]) > 0:
            raise ValueError("images have no such shape or standard deviation")
        return ImageInputs((channels, height, width), float(facts["mean"]), float(facts["std"]), bool(facts["unit"]))


def as_images(array: NDArray[Any]) -> tuple[Tensor, bool]:
    """An array (N, [channels,] height, width) as float32 images, and whether it was bytes (now in [0, 1]).

    A last axis of 1, 3 or 4 where the second has another length is that of the channels, and becomes the second.
    """
    if array.ndim not in (2, 3, 4) or array.dtype.kind not in "biuf" or not array.size:
        raise ValueError(f"images must be numbers of shape (N, [channels,] height, width), got {array.shape}")
    if array.ndim == 4 and array.shape[-1] in CHANNELS and array.shape[1] not in CHANNELS:
        array = np.moveaxis(array, -1, 1)
    images = torch.from_numpy(np.ascontiguousarray(array).astype(np.float32))
    images = images[:, None] if array.ndim == 3 else images
    return (images / 255, True) if array.dtype == np.uint8 else (images, False)


def class_folders(folder: Path) -> tuple[list[Path], list[str]]:
    """The image files of a folder with one sub-folder per class, and the class of each, both in order.

    Args:
        folder: such as `pets/` with `pets/cat/1.png` and `pets/dog/2.png`.

    Raises:
        ValueError: if there are fewer than two classes, or a class has no images or no name that can be shown.

    Example:
        >>> files, labels = class_folders(Path("pets"))  # doctest: +SKIP
    """
    folders = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    if len(folders) < 2:
        raise ValueError(f"{folder} has {len(folders)} sub-folders: put the images of each class in one of its own")
    files: list[Path] = []
    labels: list[str] = []
    for child in folders:
        if visible(child.name) != child.name:
            raise ValueError(f"{child} names a class by characters that cannot be shown: rename the folder")
        own = image_files(child)
        files += own
        labels += [child.name] * len(own)
    return files, labels


def image_files(folder: Path) -> list[Path]:
    """The image files directly in a folder, in order."""
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGE_SUFFIXES)
    if not found:
        raise ValueError(f"{folder} holds no images ({', '.join(IMAGE_SUFFIXES)})")
    return found


def read_image_files(files: Sequence[Path], shape: tuple[int, int, int] | None = None) -> Tensor:
    """Read image files as float32 in [0, 1], (N, channels, height, width); needs Pillow.

    16 bits are scaled to [0, 1] too, and what is transparent shows white.

    Args:
        files: at least one.
        shape: channels (1 or 3), height and width to bring them to; None takes the size of the first file, and three
            channels where any file has colour.

    Raises:
        ModuleNotFoundError: without Pillow.
        ValueError: if a file is not an image.
    """
    check_installed("PIL", "reading image files needs Pillow", "tables")
    from PIL import Image

    pixels: list[NDArray[np.uint8]] = []
    for file in files:
        try:
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ValueError(f"it has {image.width} x {image.height} pixels")
                if shape is None:
                    shape = (3 if any(map(_has_colour, files)) else 1, image.height, image.width)
                if shape[0] not in (1, 3):
                    raise ValueError(f"the network takes {shape[0]} channels, image files have 1 or 3")
                flat = _opaque(image).convert("L" if shape[0] == 1 else "RGB")
                if flat.size != (shape[2], shape[1]):
                    flat = flat.resize((shape[2], shape[1]), Image.Resampling.BILINEAR)
                pixels.append(np.asarray(flat))
        except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError) as error:
            why = str(error) or type(error).__name__
            raise ValueError(f"{file} cannot be read as an image ({why}): repair or remove it") from error
    stacked = torch.from_numpy(np.stack(pixels))
    stacked = stacked[:, None] if stacked.ndim == 3 else stacked.permute(0, 3, 1, 2)
    return stacked.float().contiguous() / 255


def _has_colour(file: Path) -> bool:
    """By the file's header alone; what cannot be read is left to whoever reads it."""
    from PIL import Image

    try:
        with Image.open(file, formats=FORMATS) as image:
            return image.mode not in GREY_MODES
    except (OSError, ValueError, SyntaxError, MemoryError, Image.DecompressionBombError):
        return False


def _opaque(image: Any) -> Any:
    """An image of Pillow's in 8 bits, on white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() >= 2**16:
            raise ValueError(f"its values go from {values.min()} to {values.max()}, beyond 16 bits")
        return Image.fromarray(np.round(values / 257).astype(np.uint8))
    if not (image.mode.endswith(("A", "a")) or "transparency" in image.info):
        return image
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image.convert("RGBA"))
