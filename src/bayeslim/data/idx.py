"""The idx format of MNIST and its relatives.

An idx file of unsigned bytes is: two zero bytes, the type code ``0x08``, the number of dimensions
``d``, ``d`` sizes as big-endian 32-bit integers, and then the values in row-major order. See
"The MNIST database of handwritten digits", LeCun, Cortes and Burges.
"""

import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bayeslim.data.compressed import read_first

_UNSIGNED_BYTE = 0x08
_MOST_DIMENSIONS = 4
_LIMIT = 2 << 30  # bytes; MNIST's largest file has 47 MB, EMNIST's 0.55 GB


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an idx file of unsigned bytes, plain, ``.gz`` or ``.xz``.

    The header decides how many bytes are unpacked, so a file that would unpack to more than it
    states is refused after one byte too many.

    Args:
        path: the file.

    Returns:
        A uint8 array of the stated shape, e.g. (N, 28, 28) for images and (N,) for labels.

    Example:
        >>> images = read_idx(Path("t10k-images-idx3-ubyte.gz"))  # doctest: +SKIP
        >>> images.shape  # doctest: +SKIP
        (10000, 28, 28)
    """
    header = read_first(path, 4 + 4 * _MOST_DIMENSIONS)
    if header[:3] != bytes((0, 0, _UNSIGNED_BYTE)) or len(header) < 4:
        raise _bad(path, f"starts with {header[:4].hex() or 'nothing'}, not with 000008")
    dimensions = header[3]
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise _bad(path, f"states {dimensions} dimensions, not 1 to {_MOST_DIMENSIONS}")
    start = 4 + 4 * dimensions
    if len(header) < start:
        raise _bad(path, "ends inside its header")
    shape = struct.unpack(f">{dimensions}I", header[4:start])
    count = math.prod(shape)
    if not 0 < count <= _LIMIT:
        raise _bad(path, f"states the sizes {shape}, not between 1 and {_LIMIT} values")
    content = read_first(path, start + count + 1)
    if len(content) != start + count:
        found = "more" if len(content) > start + count else str(len(content) - start)
        raise _bad(path, f"has {found} values where its header states {count}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _bad(path: Path, problem: str) -> ValueError:
    return ValueError(
        f"`{path}` is not a complete idx file of unsigned bytes: it {problem}; delete it and load the data again"
    )
