"""Image sets for classification: MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100, and any set in idx files."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayeslim.data.cache import obtain
from bayeslim.data.compressed import read_bounded
from bayeslim.data.idx import read_idx
from bayeslim.data.sources import (
    CIFAR10_CLASSES,
    CIFAR10_SOURCE,
    CIFAR100_CLASSES,
    CIFAR100_SOURCE,
    FASHION_MNIST_CLASSES,
    MNIST_CLASSES,
    Split,
    check_split,
    idx_source,
)

_SIDE = 32
_MOST_IMAGES = 100_000  # of one CIFAR file; the largest, CIFAR-100's for training, has 50,000


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images.

    Attributes:
        x: float32 (N, channels, height, width), values in [0, 1].
        y: int64 (N,), indices into `classes`.
        classes: the names of the classes.
    """

    x: Tensor
    y: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)


def mnist(
    split: Split,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = False,
) -> ImageData:
    """Load MNIST: 60,000 and 10,000 handwritten digits of 28x28 grey pixels.

    Looks for ``mnist/train-images-idx3-ubyte.gz`` and its three companions, with or without
    ``.gz``, and for the same names below ``MNIST/raw``. Pixels are divided by 255, nothing else.

    Args:
        split: ``"train"`` or ``"test"``.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.
        download: fetch what is missing from the official mirror.
        progress: show a progress bar while downloading.

    Returns:
        `ImageData` with x (N, 1, 28, 28).

    Example:
        >>> data = mnist("test")  # doctest: +SKIP
        >>> data.x.shape  # doctest: +SKIP
        torch.Size([10000, 1, 28, 28])
    """
    return _idx_set(("mnist", "MNIST/raw"), split, MNIST_CLASSES, root, download, progress)


def fashion_mnist(
    split: Split,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = False,
) -> ImageData:
    """Load Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): clothes in the format of MNIST.

    Looks for the four files below ``fashion-mnist`` or ``FashionMNIST/raw``, see `mnist`.

    Args:
        split: ``"train"`` or ``"test"``.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.
        download: fetch what is missing from the official mirror.
        progress: show a progress bar while downloading.

    Returns:
        `ImageData` with x (N, 1, 28, 28).

    Example:
        >>> data = fashion_mnist("train")  # doctest: +SKIP
        >>> data.classes[data.y[0]]  # doctest: +SKIP
        'ankle-boot'
    """
    folders = ("fashion-mnist", "FashionMNIST/raw")
    return _idx_set(folders, split, FASHION_MNIST_CLASSES, root, download, progress)


def cifar10(
    split: Split,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = False,
) -> ImageData:
    """Load CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 colour images of 32x32 pixels.

    Looks for ``cifar-10-batches-bin/data_batch_1.bin`` and its companions (the official binary layout: a label byte,
    then the red, green and blue planes). Pixels are divided by 255, nothing else. The training images take 614 MB.

    Args:
        split: ``"train"`` or ``"test"``.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.
        download: fetch and unpack the official archive where files are missing.
        progress: show a progress bar while downloading.

    Returns:
        `ImageData` with x (N, 3, 32, 32), channels red, green, blue.

    Example:
        >>> data = cifar10("test")  # doctest: +SKIP
        >>> data.x.shape  # doctest: +SKIP
        torch.Size([10000, 3, 32, 32])
    """
    check_split(split)
    stems = [f"data_batch_{i}" for i in range(1, 6)] if split == "train" else ["test_batch"]
    files = [f"cifar-10-batches-bin/{stem}.bin" for stem in stems]
    found = partial(obtain, "cifar10", source=CIFAR10_SOURCE, root=root, download=download, progress=progress)
    return images_from_cifar([found([file, f"cifar10/{file}"]) for file in files], CIFAR10_CLASSES)


def cifar100(
    split: Split,
    root: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: bool = False,
) -> ImageData:
    """Load CIFAR-100 (Krizhevsky 2009) with its 100 fine labels: images as in `cifar10`.

    Looks for ``cifar-100-binary/train.bin`` (the official binary layout: the coarse and the fine label, a byte each,
    then the red, green and blue planes), see `cifar10`.

    Args:
        split: ``"train"`` or ``"test"``.
        root: a data folder searched before ``BAYESLIM_DATA`` and the user's cache.
        download: fetch and unpack the official archive where files are missing.
        progress: show a progress bar while downloading.

    Returns:
        `ImageData` with x (N, 3, 32, 32), channels red, green, blue.

    Example:
        >>> data = cifar100("test")  # doctest: +SKIP
        >>> len(data.classes)  # doctest: +SKIP
        100
    """
    check_split(split)
    layouts = [f"cifar-100-binary/{split}.bin", f"cifar100/cifar-100-binary/{split}.bin"]
    path = obtain("cifar100", layouts, CIFAR100_SOURCE, root=root, download=download, progress=progress)
    return images_from_cifar([path], CIFAR100_CLASSES, label_bytes=2)


def images_from_cifar(paths: Sequence[Path], classes: tuple[str, ...], label_bytes: int = 1) -> ImageData:
    """Load files of 32x32 colour images in the layout of CIFAR-10, one after the other.

    Args:
        paths: files in the official binary layout, plain, ``.gz`` or ``.xz``.
        classes: the names of the classes.
        label_bytes: bytes before the pixels of an image, the last of which is its label.

    Returns:
        `ImageData` with x (N, 3, 32, 32).

    Example:
        >>> path = Path("cifar-10-batches-bin/test_batch.bin")
        >>> data = images_from_cifar([path], CIFAR10_CLASSES)  # doctest: +SKIP
        >>> len(data)  # doctest: +SKIP
        10000
    """
    if not paths:
        raise ValueError("`paths` must name at least one file, got none: pass e.g. test_batch.bin")
    parts = [_read_cifar(path, label_bytes, classes) for path in paths]
    x = torch.empty(sum(len(labels) for _, labels in parts), 3, _SIDE, _SIDE)
    np.concatenate([images for images, _ in parts], out=x.numpy())
    y = torch.from_numpy(np.concatenate([labels for _, labels in parts]).astype(np.int64))
    return ImageData(x.div_(255), y, classes)


def images_from_idx(images: Path, labels: Path, classes: tuple[str, ...]) -> ImageData:
    """Load grey images from two idx files, for any set in the format of MNIST.

    Args:
        images: idx file (N, height, width), plain, ``.gz`` or ``.xz``.
        labels: idx file (N,) of the same N.
        classes: the names of the classes.

    Returns:
        `ImageData` with x (N, 1, height, width).

    Example:
        >>> files = Path("kmnist/train-images.gz"), Path("kmnist/train-labels.gz")
        >>> data = images_from_idx(*files, classes=MNIST_CLASSES)  # doctest: +SKIP
    """
    pixels, targets = read_idx(images), read_idx(labels)
    if pixels.ndim != 3:
        raise ValueError(f"`{images}` has the shape {pixels.shape}, expected (N, height, width): pass a file of images")
    if targets.shape != pixels.shape[:1]:
        raise ValueError(
            f"`{labels}` has the shape {targets.shape}, expected {pixels.shape[:1]} to go with "
            f"`{images}`: pass the two files of one split"
        )
    _check_labels(labels, targets, classes)
    x = torch.from_numpy(pixels.astype(np.float32)).div_(255).unsqueeze(1)
    return ImageData(x, torch.from_numpy(targets.astype(np.int64)), classes)


def _idx_set(
    folders: tuple[str, str],
    split: Split,
    classes: tuple[str, ...],
    root: str | os.PathLike[str] | None,
    download: bool,
    progress: bool,
) -> ImageData:
    check_split(split)
    name = folders[0]
    prefix = "train" if split == "train" else "t10k"
    paths = []
    for stem in (f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"):
        layouts = [f"{f}/{stem}{s}" for f in folders for s in (".gz", "")]
        source = idx_source(name, f"{stem}.gz")
        paths.append(obtain(name, layouts, source, root=root, download=download, progress=progress))
    data = images_from_idx(*paths, classes=classes)
    if data.x.shape[1:] != (1, 28, 28):
        raise ValueError(
            f"`{paths[0]}` has images of the shape {tuple(data.x.shape[2:])}, expected (28, 28): "
            f"delete it and load {name} again"
        )
    return data


def _read_cifar(path: Path, label_bytes: int, classes: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    record = label_bytes + 3 * _SIDE**2
    raw = read_bounded(path, _MOST_IMAGES * record)
    if not raw or len(raw) % record:
        raise ValueError(
            f"`{path}` has {len(raw)} bytes, expected a multiple of {record}: delete it and load the data again"
        )
    records = np.frombuffer(raw, np.uint8).reshape(-1, record)
    _check_labels(path, records[:, label_bytes - 1], classes)
    return records[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE), records[:, label_bytes - 1]


def _check_labels(path: Path, labels: NDArray[np.uint8], classes: tuple[str, ...]) -> None:
    if labels.max() >= len(classes):
        raise ValueError(
            f"`{path}` has the label {labels.max()}, expected 0 to {len(classes) - 1}: it is damaged "
            "or belongs to another set"
        )
