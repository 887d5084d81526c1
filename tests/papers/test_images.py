"""Images as bytes on the device: what a varied batch may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import bayeslim as bl
from bayeslim.data import ImageData
from bayeslim_papers.images.varied import CIFAR10, Images, load_cifar10, load_mnist, made_images


def images(count: int = 6, **options: Any) -> Images:
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(1, 256, (count, 5, 4, 3), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.arange(count), torch.zeros(3), torch.ones(3), **options)


def test_standardised_pixels() -> None:
    centre, spread = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1.0, 2.0])
    some = replace(images(), centre=centre, spread=spread)
    x, y = some.plain()
    assert x.shape == (6, 3, 5, 4) and x.dtype == torch.float32
    assert x.is_contiguous(memory_format=torch.channels_last)
    for channel in range(3):
        expected = (some.pixels[..., channel].double() / 255 - centre[channel].double()) / spread[channel].double()
        torch.testing.assert_close(x[:, channel].double(), expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(y, torch.arange(6))


def test_a_loader_gives_whole_batches_in_a_random_order() -> None:
    loader = images(7).loader(3)
    torch.manual_seed(0)
    epochs = [torch.cat([y for _, y in loader]).tolist() for _ in range(20)]
    assert len(loader) == 2 and all(len(epoch) == len(set(epoch)) == 6 for epoch in epochs)
    assert {row for epoch in epochs for row in epoch} == set(range(7)) and len({str(epoch) for epoch in epochs}) > 10
    x, y = next(iter(loader))
    torch.testing.assert_close(x, images(7).plain()[0][y])
    with pytest.raises(ValueError, match="`batch_size` must be at most 7, the number of images, got 8"):
        images(7).loader(8)


def test_without_variations_a_batch_is_its_rows() -> None:
    some, rows = images(), torch.tensor([4, 0, 4])
    x, y = some.varied(rows)
    assert torch.equal(x, some.plain()[0][rows]) and torch.equal(y, rows)
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("mirrored", [False, True])
def test_every_piece_that_a_crop_can_cut_occurs_and_nothing_else(mirrored: bool) -> None:
    some = images(1, crop=3, mirrored=mirrored)  # out of 5 x 4
    whole = replace(some, crop=0).plain()[0][0]
    pieces = [whole[:, top : top + 3, left : left + 3] for top in range(3) for left in range(2)]
    pieces += [piece.flip(-1) for piece in pieces] if mirrored else []
    torch.manual_seed(0)
    found = some.varied(torch.zeros(1500, dtype=torch.long))[0]
    counts = [int((found == piece).flatten(1).all(1).sum()) for piece in pieces]
    assert sum(counts) == 1500
    expected = 1500 / len(counts)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts)
    torch.testing.assert_close(some.plain()[0][0], whole[:, 1:4, 0:3])


def test_a_crop_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="`crop` must be 0, or no larger than an image, got 5"):
        images(crop=5)


@pytest.mark.parametrize(("padding", "mirrored"), [(0, True), (1, False), (1, True), (2, True)])
def test_every_crop_and_mirror_image_occurs_and_nothing_else(padding: int, mirrored: bool) -> None:
    some = images(1, padding=padding, mirrored=mirrored)
    image = some.plain()[0][0]
    torch.manual_seed(0)
    found = some.varied(torch.zeros(1500, dtype=torch.long))[0]
    counts = [int((found == variant).flatten(1).all(1).sum()) for variant in variants(image, padding, mirrored)]
    assert sum(counts) == 1500
    expected = 1500 / len(counts)  # five standard errors of a binomial count
    assert all(abs(count - expected) < 5 * expected**0.5 for count in counts)


def variants(image: Tensor, padding: int, mirrored: bool) -> list[Tensor]:
    """All crops of the image in a black border, and their mirror images, by torch's own padding."""
    height, width = image.shape[1:]
    framed = F.pad(image, [padding] * 4)
    places = range(2 * padding + 1)
    crops = [framed[:, top : top + height, left : left + width] for top in places for left in places]
    return crops + ([crop.flip(-1) for crop in crops] if mirrored else [])


def test_the_border_is_black_before_it_is_standardised() -> None:
    some = replace(images(1, padding=5), centre=torch.full((3,), 0.5))
    torch.manual_seed(0)
    x, _ = some.varied(torch.zeros(200, dtype=torch.long))
    assert bool((x == -0.5).flatten(1).all(1).any())  # nothing but border


@pytest.mark.parametrize("load", [load_cifar10, load_mnist])
def test_data_sets_become_the_bytes_they_were(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    channels, name = (3, "cifar10") if load is load_cifar10 else (1, "mnist")
    pixels = torch.arange(256).repeat(channels, 1).view(1, channels, 16, 16)

    def stored(split: str, root: Path | None) -> ImageData:
        assert root == Path("here")
        return ImageData(pixels / 255, torch.tensor([7 if split == "train" else 3]), ("a",))

    monkeypatch.setattr(bl.data, name, stored)
    train, test = load(Path("here"), "cpu")
    assert train.pixels.dtype == torch.uint8 and torch.equal(train.pixels.permute(0, 3, 1, 2), pixels.byte())
    assert (train.labels.item(), test.labels.item()) == (7, 3)
    assert (train.padding, train.mirrored) == ((4, True) if channels == 3 else (0, False))
    assert (test.padding, test.mirrored) == (0, False)
    if channels == 3:
        torch.testing.assert_close(test.plain()[0][0, 1, 0, 0].item(), -CIFAR10[0][1] / CIFAR10[1][1])
    else:
        torch.testing.assert_close(test.plain()[0], pixels / 255)


def test_made_images_are_the_same_every_time() -> None:
    (one, _), (other, test) = (made_images(8, 3, (20, 10), "cpu") for _ in range(2))
    assert torch.equal(one.pixels, other.pixels) and len(one) == 20 and len(test) == 10
