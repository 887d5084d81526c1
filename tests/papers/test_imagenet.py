"""ImageNet as arrays in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bayeslim_papers.images import imagenet
from bayeslim_papers.images.imagenet import load_imagenet, prepare_imagenet

COLOURS = {"n01": (250, 10, 10), "n02": (10, 10, 250)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two classes, two images of each to train on and one to test, wider than high."""
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 2), ("val", 1)):
        for name, colour in COLOURS.items():
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                image.new("RGB", (300, 260), colour).save(folder / f"{number}.png")
    return tmp_path


def test_images_become_arrays_that_are_read_piece_by_piece(source: Path, tmp_path: Path) -> None:
    prepare_imagenet(source, tmp_path / "data")
    train, test = load_imagenet(tmp_path / "data", "cpu")
    assert train.pixels.shape == (4, 256, 256, 3) and train.labels.tolist() == [0, 0, 1, 1]
    assert test.labels.tolist() == [0, 1] and train.mirrored and not test.mirrored
    x, y = train.varied(torch.tensor([3, 0]))
    assert x.shape == (2, 3, 224, 224) and y.tolist() == [1, 0]
    assert test.plain()[0].shape == (2, 3, 224, 224)
    centre, spread = (torch.tensor(values) for values in imagenet.COLOURS)
    blue = (torch.tensor(COLOURS["n02"]) / 255 - centre) / spread
    torch.testing.assert_close(x[0, :, 100, 100], blue)
    torch.testing.assert_close(test.plain()[0][1, :, 0, 0], blue)


def test_a_class_without_training_images_and_empty_parts_are_refused(source: Path, tmp_path: Path) -> None:
    (source / "val" / "n02").rename(source / "val" / "n03")
    with pytest.raises(ValueError, match="has the class 'n03', which train/ lacks"):
        prepare_imagenet(source, tmp_path / "data")
    with pytest.raises(FileNotFoundError, match="has no folders with images"):
        prepare_imagenet(source / "val", tmp_path / "data")


def test_what_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="bayeslim_papers.images.imagenet FOLDER --root DATA"):
        load_imagenet(tmp_path, "cpu")


def test_prepared_from_the_command_line(source: Path, tmp_path: Path) -> None:
    imagenet.main([str(source), "--root", str(tmp_path / "data")])
    assert np.load(tmp_path / "data" / "imagenet" / "test-labels.npy").tolist() == [0, 1]
