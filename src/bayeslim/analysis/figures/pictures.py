"""Arrays as colours and small pictures."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["PALETTE", "class_map", "input_picture", "png_address", "ramp"]

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31", "#6A51A3", "#999999", "#BDB76B")
"""Colours of classes and series; the first six are Okabe and Ito's, told apart by colour-blind readers."""
_RAMP = np.array([[252, 253, 255], [198, 219, 239], [107, 174, 214], [33, 113, 181], [8, 48, 107]], np.float64)


def ramp(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Values in [0, 1], (height, width), as colours from near white to dark blue, (height, width, 3)."""
    place = np.clip(np.nan_to_num(values), 0, 1) * (len(_RAMP) - 1)
    low = np.minimum(place.astype(int), len(_RAMP) - 2)
    part = (place - low)[..., None]
    return np.round((1 - part) * _RAMP[low] + part * _RAMP[low + 1]).astype(np.uint8)


def class_map(probabilities: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Class probabilities (height, width, classes) as the colour of the likeliest, paler the less sure it is."""
    classes = probabilities.shape[-1]
    colours = np.array([_rgb(PALETTE[index % len(PALETTE)]) for index in range(classes)], np.float64)
    confidence = probabilities.max(-1)
    strength = 0.75 * np.clip((confidence - 1 / classes) / (1 - 1 / classes), 0, 1)[..., None]
    mixed = strength * colours[probabilities.argmax(-1)] + (1 - strength) * 255
    return np.round(mixed).astype(np.uint8)


def input_picture(x: Tensor) -> NDArray[np.uint8]:
    """An image (channels, height, width) as grey levels or colours, stretched to its own range."""
    values = x.detach().double().cpu().numpy()
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):
        values = (values - low) / max(high - low, 1e-12)
    if len(values) == 3:
        shown = values.transpose(1, 2, 0)
    else:
        grey = 1 - values.mean(0) if len(values) == 1 else values.mean(0)  # dark ink on white
        shown = np.repeat(grey[..., None], 3, 2)
    return np.round(255 * shown).astype(np.uint8)


def png_address(pixels: NDArray[np.uint8]) -> str:
    """Pixels (height, width, 3) as a `data:` address of a PNG file.

    Example:
        >>> png_address(np.zeros((1, 1, 3), np.uint8))[:22]
        'data:image/png;base64,'
    """
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _rgb(colour: str) -> list[int]:
    return [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
