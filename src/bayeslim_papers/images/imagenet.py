"""ImageNet as arrays of bytes in files, from which batches are read as they are needed.

    python -m bayeslim_papers.images.imagenet FOLDER --root DATA

makes them out of the folders train/ and val/ of JPEG files, one folder per class (needs Pillow, and 280 GB of room):
the shorter side becomes 256 pixels, the middle is kept.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from bayeslim_papers.images.varied import Images, Splits

__all__ = ["load_imagenet", "main", "prepare_imagenet"]

SIDE, CROP = 256, 224
COLOURS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of red, green and blue that are usual for ImageNet."""
PARTS = {"train": "train", "test": "val"}
"""Parts, and their folders in ImageNet; its own test labels are not public."""


def load_imagenet(root: Path | None, device: str) -> Splits:
    """ImageNet, standardised by channel; training images are cropped to 224 pixels and mirrored at random.

    The folder `root` holds imagenet/ with what `prepare_imagenet` wrote; the pixels stay in these files.

    Raises:
        FileNotFoundError: if there is nothing there; the message says how to make it.
    """
    folder = (root or Path()) / "imagenet"
    centre, spread = (torch.tensor(values, device=device) for values in COLOURS)
    parts: list[Images] = []
    for part in PARTS:
        pixels, labels = (folder / f"{part}-{what}.npy" for what in ("pixels", "labels"))
        if not pixels.is_file() or not labels.is_file():
            raise FileNotFoundError(
                f"{pixels} and {labels.name} are not there: make them with `python -m "
                "bayeslim_papers.images.imagenet FOLDER --root DATA`, or name their folder by --root"
            )
        bytes_ = torch.from_numpy(np.load(pixels, mmap_mode="c"))  # copied where written to: torch wants that right
        parts.append(Images(bytes_, torch.from_numpy(np.load(labels)).to(device), centre, spread, crop=CROP))
    train, test = parts
    return Splits(replace(train, mirrored=True), test)


def prepare_imagenet(source: Path, root: Path, side: int = SIDE) -> None:
    """Write the images of the folders train/ and val/, with one folder per class, as arrays in the folder imagenet/.

    Classes are numbered in the order of their folders' names, those of train/ for both parts.

    Raises:
        FileNotFoundError: if a part has no images.
        ValueError: if val/ has a class that train/ lacks.
    """
    from PIL import Image, ImageOps

    folder = root / "imagenet"
    folder.mkdir(parents=True, exist_ok=True)
    classes = sorted(path.name for path in (source / "train").glob("*/"))
    number = {name: index for index, name in enumerate(classes)}
    for part, name in PARTS.items():
        files = sorted(path for path in (source / name).glob("*/*") if path.is_file())
        if not files:
            raise FileNotFoundError(
                f"{source / name} has no folders with images: pass the folder that holds train/, val/"
            )
        unknown = {file.parent.name for file in files} - number.keys()
        if unknown:
            raise ValueError(f"{source / name} has the class {min(unknown)!r}, which train/ lacks: check the folders")
        shape = (len(files), side, side, 3)
        pixels = np.lib.format.open_memmap(folder / f"{part}-pixels.npy", mode="w+", dtype=np.uint8, shape=shape)
        for row, file in enumerate(track(files, f"{part}: {len(files)} images")):
            with Image.open(file) as image:
                pixels[row] = np.asarray(ImageOps.fit(image.convert("RGB"), (side, side)))
        pixels.flush()
        np.save(folder / f"{part}-labels.npy", np.array([number[file.parent.name] for file in files]))


def main(arguments: list[str] | None = None) -> None:
    """Prepare ImageNet from the command line."""
    program, shape = "python -m bayeslim_papers.images.imagenet", argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=program, description=__doc__, formatter_class=shape)
    parser.add_argument("source", type=Path, help="folder with train/ and val/")
    parser.add_argument("--root", type=Path, required=True, help="data folder, gets imagenet/")
    chosen = parser.parse_args(arguments)
    prepare_imagenet(chosen.source, chosen.root)


if __name__ == "__main__":
    main()
