import gzip
import hashlib
import io
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from bayeslim.data import cifar10, cifar100, fashion_mnist, images_from_cifar, images_from_idx, mnist, read_idx
from bayeslim.data.compressed import read_bounded
from bayeslim.data.sources import CIFAR10_CLASSES, KNOWN_SHA256, MNIST_CLASSES
from contracts.cases import each

RNG = np.random.default_rng(0)


def idx_bytes(values: NDArray[np.uint8]) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.tobytes()


def write_mnist(folder: Path, suffix: str = "", name: str = "mnist", side: int = 28) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", 12), ("t10k", 5)):
        images = RNG.integers(0, 256, (count, side, side)).astype(np.uint8)
        images[0, 0, :2] = 0, 255
        for stem, values in (
            (f"{prefix}-images-idx3-ubyte", images),
            (f"{prefix}-labels-idx1-ubyte", (np.arange(count) % 10).astype(np.uint8)),
        ):
            raw = idx_bytes(values)
            path = folder / name / (stem + suffix)
            path.write_bytes(gzip.compress(raw) if suffix else raw)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_idx_round_trip(tmp_path: Path, shape: tuple[int, ...], suffix: str) -> None:
    values = RNG.integers(0, 256, shape).astype(np.uint8)
    raw = idx_bytes(values)
    packed = {"": raw, ".gz": gzip.compress(raw), ".xz": lzma.compress(raw)}[suffix]
    path = tmp_path / f"values{suffix}"
    path.write_bytes(packed)
    np.testing.assert_array_equal(read_idx(path), values)


GOOD = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))


@each(
    ("raw", "problem"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08", "starts with 000008,"),
        (b"\x01" + GOOD[1:], "starts with 01000803, not with 000008"),
        (b"\x00\x00\x0d" + GOOD[3:], "starts with 00000d03"),
        (b"\x00\x00\x08\x00", "states 0 dimensions"),
        (b"\x00\x00\x08\xff" + bytes(1020), "states 255 dimensions"),
        (GOOD[:10], "ends inside its header"),
        (GOOD[:-1], "has 23 values where its header states 24"),
        (GOOD + b"\x00", "has more values where its header states 24"),
        (GOOD[:4] + b"\xff" * 12, "states the sizes"),
        (GOOD[:4] + bytes(12), "states the sizes"),
        (GOOD[:4] + struct.pack(">3I", 1 << 10, 1 << 10, 1 << 10), "has 24 values"),
    ],
)
@each("suffix", ["", ".gz"])
def test_bad_idx_files_are_named(tmp_path: Path, raw: bytes, problem: str, suffix: str) -> None:
    if problem.startswith("has 24"):
        raw += GOOD[16:]
    path = tmp_path / f"bad-file{suffix}"
    path.write_bytes(gzip.compress(raw) if suffix else raw)
    with pytest.raises(ValueError, match=problem) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_damaged_compression_is_named(tmp_path: Path) -> None:
    raw = GOOD[:4] + struct.pack(">3I", 10, 100, 100) + RNG.bytes(100_000)
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        packed = pack(raw)
        flipped = bytearray(packed)
        flipped[len(packed) // 2] ^= 0xFF
        for content in (packed[:-50], packed[: len(packed) // 2], bytes(flipped), b"nonsense"):
            path = tmp_path / f"file{suffix}"
            path.write_bytes(content)
            with pytest.raises(ValueError, match=rf"file{suffix}` is damaged"):
                read_idx(path)


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(20_000_000)))
    with pytest.raises(ValueError, match="has more values"):
        read_idx(path)
    path = tmp_path / "bomb.xz"
    path.write_bytes(lzma.compress(bytes(20_000_000)))
    with pytest.raises(ValueError, match=r"bomb.xz` unpacks to more than 1000 bytes"):
        read_bounded(path, 1000)
    assert len(read_bounded(path, 20_000_000)) == 20_000_000


@pytest.mark.parametrize(
    ("load", "folder"),
    [
        (mnist, "mnist"),
        (mnist, "MNIST/raw"),
        (fashion_mnist, "fashion-mnist"),
        (fashion_mnist, "FashionMNIST/raw"),
    ],
)
def test_mnist_layouts(tmp_path: Path, load, folder: str) -> None:
    write_mnist(tmp_path, name=folder)
    train, test = load("train", tmp_path), load("test", root=tmp_path)
    assert train.x.shape == (12, 1, 28, 28)
    assert train.x.dtype == torch.float32
    assert (train.x.min(), train.x.max()) == (0, 1)
    assert train.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert train.y.dtype == torch.int64
    assert len(train.classes) == 10
    assert len(test) == 5
    raw = (tmp_path / folder / "t10k-images-idx3-ubyte").read_bytes()[16:]
    assert (test.x * 255).round().to(torch.uint8).numpy().tobytes() == raw


def test_mnist_verifies_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path, suffix=".gz")
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz` is corrupt"):
        mnist("train", tmp_path)
    for path in (tmp_path / "mnist").iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setitem(KNOWN_SHA256, f"mnist/{path.name}", digest)
    assert len(mnist("train", tmp_path)) == 12


def test_mnist_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"`mnist` was not found in .*download=False"):
        mnist("train", tmp_path, download=False)
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded \(https://"):
        mnist("train", tmp_path)
    with pytest.raises(ValueError, match="`split` must be"):
        mnist("all", tmp_path)  # pyright: ignore[reportArgumentType]
    write_mnist(tmp_path, side=20)
    with pytest.raises(ValueError, match=r"shape \(20, 20\), expected \(28, 28\)"):
        mnist("train", tmp_path)


def test_idx_images_must_fit_their_labels(tmp_path: Path) -> None:
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(GOOD)
    labels.write_bytes(idx_bytes(np.array([1, 9], np.uint8)))
    data = images_from_idx(images, labels, MNIST_CLASSES)
    assert data.x.shape == (2, 1, 3, 4)
    assert data.y.tolist() == [1, 9]
    with pytest.raises(ValueError, match="has the label 9, expected 0 to 4"):
        images_from_idx(images, labels, MNIST_CLASSES[:5])
    with pytest.raises(ValueError, match=r"expected \(N, height, width\)"):
        images_from_idx(labels, labels, MNIST_CLASSES)
    labels.write_bytes(idx_bytes(np.array([1, 2, 3], np.uint8)))
    with pytest.raises(ValueError, match=r"labels` has the shape \(3,\), expected \(2,\)"):
        images_from_idx(images, labels, MNIST_CLASSES)


def test_cifar_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (6, 3, 32, 32)).astype(np.uint8)
    labels = RNG.integers(0, 10, 6).astype(np.uint8)
    records = np.concatenate([labels[:, None], images.reshape(6, -1)], 1)
    (tmp_path / "a.bin").write_bytes(records[:4].tobytes())
    (tmp_path / "b.bin.gz").write_bytes(gzip.compress(records[4:].tobytes()))
    data = images_from_cifar([tmp_path / "a.bin", tmp_path / "b.bin.gz"], CIFAR10_CLASSES)
    assert torch.equal(data.x, torch.from_numpy(images).float() / 255)
    assert torch.equal(data.y, torch.from_numpy(labels.astype(np.int64)))


def test_bad_cifar_files_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.bin"
    for content, problem in (
        (b"", "has 0 bytes"),
        (bytes(3072), "has 3072 bytes"),
        (b"\x0a" + bytes(3072), "has the label 10, expected 0 to 9"),
    ):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=rf"bad.bin` {problem}"):
            images_from_cifar([bad], CIFAR10_CLASSES)
    with pytest.raises(ValueError, match="`paths` must name at least one file"):
        images_from_cifar([], CIFAR10_CLASSES)


def test_cifar100_takes_the_fine_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, pixels = "cifar-100-binary/test.bin", np.arange(3 * 3072, dtype=np.uint32).astype(np.uint8).reshape(3, 3072)
    content = b"".join(bytes([coarse, fine]) + row.tobytes() for coarse, fine, row in zip(*LABELS, pixels, strict=True))
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_bytes(content)
    monkeypatch.setitem(KNOWN_SHA256, name, hashlib.sha256(content).hexdigest())
    data = cifar100("test", tmp_path)
    assert data.y.tolist() == list(LABELS[1])
    assert [data.classes[index] for index in data.y] == ["apple", "leopard", "worm"]
    assert torch.equal((data.x * 255).round().to(torch.uint8).flatten(1), torch.from_numpy(pixels))
    with pytest.raises(FileNotFoundError, match=r"put cifar-100-binary/train\.bin"):
        cifar100("train", tmp_path, download=False)


LABELS = (4, 8, 13), (0, 42, 99)
"""Coarse and fine ones."""


def test_cifar10_finds_every_file_of_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for label, name in enumerate(names):
        content = bytes([label]) + bytes(3072)
        (tmp_path / name).write_bytes(content)
        monkeypatch.setitem(KNOWN_SHA256, name, hashlib.sha256(content).hexdigest())
    data = cifar10("train", tmp_path)
    assert data.y.tolist() == [0, 1, 2, 3, 4]
    assert data.x.shape == (5, 3, 32, 32)
    (tmp_path / names[3]).unlink()
    with pytest.raises(FileNotFoundError, match=r"put cifar-10-batches-bin/data_batch_4\.bin"):
        cifar10("train", tmp_path, download=False)


def test_a_file_that_asks_for_too_much_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Greedy(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise MemoryError

    monkeypatch.setattr(lzma, "open", lambda path, mode: Greedy())
    with pytest.raises(ValueError, match=r"a.xz` is damaged \(it asks for more memory than there is"):
        read_bounded(tmp_path / "a.xz", 10)
