r"""A compact lossless coding of CIFAR images: prediction residuals under xz.

Under the xz layer a file of N images holds N label bytes and then an array (3, N, 32, 32) of
residual bytes, one plane each for green, red - green and blue - green. A plane is coded in raster
order; with w, n and nw the neighbours of a pixel to the west, north and north-west,

.. math:: \text{residual} = v - \operatorname{median}(w, n, w + n - nw) \pmod{256},

the median edge predictor of JPEG-LS (Weinberger, Seroussi and Sapiro 2000, eq. 1). The first row
is predicted by w, the first column by n, the corner by 0. Green counts from 0 to 255; the two
differences are taken modulo 256 and count from -128 to 127.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bayeslim.data.compressed import read_bounded

SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE  # bytes of a label and its image, in this and the official layout
MOST_BYTES = 100_000 * RECORD  # of one file; the real ones hold 10,000 images


def decode_residuals(raw: bytes | bytearray) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    r"""Decode the content of a file, after the xz layer.

    All images and planes advance together, one pixel at a time. Everything stays in bytes: 128 is
    added to the difference planes, which makes them unsigned and moves their predictions by the
    same 128; and as :math:`w + n = \min(w, n) + \max(w, n)`,

    .. math:: \operatorname{median}(w, n, w + n - nw)
              = w + n - \operatorname{clip}(nw, \min(w, n), \max(w, n)),

    whose right side is exact modulo 256.

    Args:
        raw: N label bytes and 3 * N * 1024 residual bytes.

    Returns:
        Images (N, 3, 32, 32) in the order red, green, blue, and labels (N,), both uint8.

    Example:
        >>> images, labels = decode_residuals(bytes(3073))
        >>> images.shape, int(images.max()), labels.tolist()
        ((1, 3, 32, 32), 0, [0])
    """
    count, rest = divmod(len(raw), RECORD)
    if count == 0 or rest:
        raise ValueError(f"`raw` must hold {RECORD} bytes an image, got {len(raw)}: pass the whole unpacked file")
    labels = np.frombuffer(raw, np.uint8, count).copy()
    residuals = np.frombuffer(raw, np.uint8, offset=count).reshape(3 * count, SIDE * SIDE)
    # Pixel-major: the values of one position, over all planes and images, lie side by side.
    values = np.ascontiguousarray(residuals.T).reshape(SIDE, SIDE, 3 * count)
    values[0, 0, count:] += 128
    np.add.accumulate(values[0], axis=0, out=values[0])
    np.add.accumulate(values[:, 0], axis=0, out=values[:, 0])
    for row in range(1, SIDE):
        for column in range(1, SIDE):
            west, north = values[row, column - 1], values[row - 1, column]
            corner = np.maximum(values[row - 1, column - 1], np.minimum(west, north))
            np.minimum(corner, np.maximum(west, north), out=corner)
            value = values[row, column]
            value += west
            value += north
            value -= corner
    planes = values.reshape(SIDE * SIDE, 3, count)
    planes[:, 1:] += planes[:, :1]
    planes[:, 1:] -= 128
    images = np.empty((count, 3, SIDE * SIDE), np.uint8)
    for channel, plane in enumerate((1, 0, 2)):
        images[:, channel] = planes[:, plane].T
    return images.reshape(count, 3, SIDE, SIDE), labels


def read_cifar_xz(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read one ``.xz`` file of CIFAR images.

    Args:
        path: the file, in the coding this module describes.

    Returns:
        Images (N, 3, 32, 32) and labels (N,), both uint8.

    Example:
        >>> images, labels = read_cifar_xz(Path("cifar10/test_batch.xz"))  # doctest: +SKIP
        >>> images.shape  # doctest: +SKIP
        (10000, 3, 32, 32)
    """
    raw = read_bounded(path, MOST_BYTES)
    if not raw or len(raw) % RECORD:
        raise ValueError(
            f"`{path}` unpacks to {len(raw)} bytes, expected a multiple of {RECORD}: delete it and load the data again"
        )
    return decode_residuals(raw)
