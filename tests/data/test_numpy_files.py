"""Whatever numpy raises for a bad file is a ValueError that names it."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bayeslim.data.numpy_files import reading_arrays


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


GOOD = npy(np.arange(6.0))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD.replace(b"(6,)", b"(10**9,)"), ""),
        (GOOD.replace(b"(6,)", b"(6,  "), ""),  # tokenize.TokenError
        (GOOD.replace(b"(6,), }         ", b"(10000000000000,), }"), ""),  # MemoryError
        (GOOD.replace(b"(6,), }                     ", b"(100000000000000000000000,), }"), ""),  # OverflowError
        (GOOD[:-3], ""),
        (b"", "No data left"),
        (pickle.dumps([1]), "pickled"),
        (npy(np.array([1, "a"], dtype=object)), "allow_pickle=False"),
    ],
)
def test_bad_arrays_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\.npy cannot be read as numpy arrays \(.*{message}"), reading_arrays(file):
        np.load(file, allow_pickle=False)
    packed = archive(tmp_path / "x.npz", x=content)
    with pytest.raises(ValueError, match=r"x\.npz cannot be read as numpy arrays"), reading_arrays(packed):
        np.load(packed, allow_pickle=False)["x"].sum()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    file = archive(tmp_path / "x.npz", x=GOOD, zeros=bytes(1 << 24))
    assert file.stat().st_size < 1 << 16
    with pytest.raises(ValueError, match="it unpacks to .* more than 1000000"), reading_arrays(file, 1_000_000):
        pytest.fail("the block must not be entered")
    with reading_arrays(file):
        assert np.load(file, allow_pickle=False)["x"].sum() == 15


def test_an_absent_file_is_absent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), reading_arrays(tmp_path / "x.npy"):
        np.load(tmp_path / "x.npy", allow_pickle=False)
