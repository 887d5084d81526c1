"""The real sets, where they are found: see the fixture `real_data`."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from bayeslim.data import (
    UCI_NAMES,
    cifar10,
    cifar100,
    fashion_mnist,
    images_from_cifar,
    imdb,
    mnist,
    standardise,
    uci,
)
from bayeslim.data.cache import obtain
from bayeslim.data.sources import CIFAR10_CLASSES, Split

ROWS = {
    "bostonHousing": (506, 13, 20),
    "concrete": (1030, 8, 20),
    "energy": (768, 8, 20),
    "kin8nm": (8192, 8, 20),
    "power-plant": (9568, 4, 20),
    "protein-tertiary-structure": (45730, 9, 5),
    "wine-quality-red": (1599, 11, 20),
}


def need(real_data: Path, *alternatives: str) -> None:
    if not any((real_data / name).exists() for name in alternatives):
        pytest.skip(f"none of {', '.join(alternatives)} in {real_data}")


def test_mnist(real_data: Path) -> None:
    need(real_data, "mnist", "MNIST/raw")
    data = mnist("test", real_data, download=False)
    assert data.x.shape == (10_000, 1, 28, 28)
    counts = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.y.bincount().tolist() == counts
    assert data.y[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_mnist_training_images_have_the_published_moments(real_data: Path) -> None:
    need(real_data, "mnist", "MNIST/raw")
    data = mnist("train", real_data, download=False)
    assert len(data) == 60_000
    assert data.x.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert data.x.std().item() == pytest.approx(0.3081, abs=5e-5)


def test_fashion_mnist(real_data: Path) -> None:
    need(real_data, "fashion-mnist", "FashionMNIST/raw")
    data = fashion_mnist("test", real_data, download=False)
    assert data.x.shape == (10_000, 1, 28, 28)
    assert data.y.bincount().tolist() == [1000] * 10
    assert data.classes[data.y[0]] == "ankle-boot"


def test_one_file_of_cifar10(real_data: Path) -> None:
    need(real_data, "cifar-10-batches-bin")
    path = obtain("cifar10", ["cifar-10-batches-bin/data_batch_1.bin"], None, root=real_data)
    data = images_from_cifar([path], CIFAR10_CLASSES)
    assert data.x.shape == (10_000, 3, 32, 32)
    assert len(data.y.bincount()) == 10
    # The means of all 50,000; ten thousand images come within five standard errors of them.
    means = data.x.mean((0, 2, 3))
    errors = data.x.mean((2, 3)).std(0) / 100
    assert ((means - torch.tensor([0.4914, 0.4822, 0.4465])).abs() < 5 * errors).all()


@pytest.mark.slow
def test_all_of_cifar10(real_data: Path) -> None:
    need(real_data, "cifar-10-batches-bin")
    train = cifar10("train", real_data, download=False)
    assert train.x.shape == (50_000, 3, 32, 32)
    assert train.y.bincount().tolist() == [5000] * 10
    means = train.x.double().mean((0, 2, 3)).tolist()
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    test = cifar10("test", real_data, download=False)
    assert test.y.bincount().tolist() == [1000] * 10


@pytest.mark.slow
def test_all_of_cifar100(real_data: Path) -> None:
    need(real_data, "cifar-100-binary")
    train, test = (cifar100(split, real_data, download=False) for split in get_args(Split))
    assert train.y.bincount().tolist() == [500] * 100
    assert test.y.bincount().tolist() == [100] * 100
    assert train.x.double().mean((0, 2, 3)).tolist() == pytest.approx([0.5071, 0.4865, 0.4409], abs=1e-4)


def test_imdb(real_data: Path) -> None:
    need(real_data, "imdb", "aclImdb")
    data = imdb("train", real_data, download=False)
    assert len(data) == 25_000
    assert data.y.bincount().tolist() == [12_500, 12_500]
    assert torch.equal(data.y == 1, data.ratings >= 7)
    assert set(data.ratings.tolist()) == {1, 2, 3, 4, 7, 8, 9, 10}
    assert all(data.texts)


@pytest.mark.parametrize("name", UCI_NAMES)
def test_uci(real_data: Path, name: str) -> None:
    need(real_data, f"uci/{name}.npz")
    rows, features, splits = ROWS[name]
    data = uci(name, splits - 1, real_data)
    assert data.x_train.shape[1] == data.x_test.shape[1] == features
    assert len(data.x_train) + len(data.x_test) == rows
    assert len(data.x_test) == pytest.approx(rows / 10, abs=1)
    scaled, _ = standardise(data)
    assert all(torch.isfinite(values).all() for values in vars(scaled).values())
    with pytest.raises(ValueError, match=f"`split` must be from 0 to {splits - 1}"):
        uci(name, splits, real_data)
