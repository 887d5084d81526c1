import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.data import UCI_NAMES, RegressionData, regression_npz, standardise, tabular, uci

X = np.arange(30, dtype=np.float64).reshape(10, 3)
Y = np.linspace(-1, 1, 10)
TRAIN = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [9, 8, 7, 6, 5, 4, 3, 2]])
TEST = np.array([[8, 9], [1, 0]])


def write(path: Path, **changes: Any) -> Path:
    arrays = {"x": X, "y": Y, "train_idx": TRAIN, "test_idx": TEST} | changes
    np.savez_compressed(path, **{key: value for key, value in arrays.items() if value is not None})
    return path


def test_a_split_takes_its_rows(tmp_path: Path) -> None:
    data = regression_npz(write(tmp_path / "a.npz"), 1)
    np.testing.assert_array_equal(data.x_train.numpy(), X[TRAIN[1]].astype(np.float32))
    np.testing.assert_array_equal(data.y_train.numpy(), Y[TRAIN[1], None].astype(np.float32))
    np.testing.assert_array_equal(data.x_test.numpy(), X[TEST[1]].astype(np.float32))
    np.testing.assert_array_equal(data.y_test.numpy(), Y[TEST[1], None].astype(np.float32))
    assert data.x_train.dtype == data.y_test.dtype == torch.float32
    column = regression_npz(write(tmp_path / "b.npz", y=Y[:, None]), 1)
    assert torch.equal(column.y_train, data.y_train)


@pytest.mark.parametrize("split", [-1, 2])
def test_split_numbers_are_checked(tmp_path: Path, split: int) -> None:
    path = write(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=rf"`split` must be from 0 to 1 for `a.npz`, got {split}"):
        regression_npz(path, split)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"x": None}, "cannot be read"),
        ({"x": X[:, 0]}, "has x of the shape"),
        ({"y": Y[:5]}, "has x of the shape"),
        ({"x": X.astype(str)}, "has x of the type"),
        ({"x": X + 1j}, "has x of the type"),
        ({"x": X.astype(object)}, "cannot be read .*allow_pickle=False"),
        ({"y": np.where(Y > 0, np.nan, Y)}, "not finite"),
        ({"x": X * 1e300}, "not finite in float32"),
        ({"train_idx": TRAIN[0]}, "has index arrays"),
        ({"train_idx": TRAIN[:1]}, "has index arrays"),
        ({"train_idx": TRAIN[:, :0]}, "has index arrays"),
        ({"train_idx": TRAIN + 5}, "outside 0 to 9"),
        ({"test_idx": TEST - 9}, "outside 0 to 9"),
        ({"test_idx": TEST.astype(float)}, "outside 0 to 9"),
        ({"test_idx": TRAIN[:, :1]}, "both in train and test"),
    ],
)
def test_bad_archives_are_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    path = write(tmp_path / "bad.npz", **changes)
    with pytest.raises(ValueError, match=problem) as caught:
        regression_npz(path, 0)
    assert str(path) in str(caught.value)


def test_damaged_archives_are_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[60:100] = bytes(40)
    bad = tmp_path / "bad.npz"
    for content in (b"", b"nonsense", whole[:-30], bytes(flipped)):
        bad.write_bytes(content)
        with pytest.raises(ValueError, match=r"bad.npz` cannot be read"):
            regression_npz(bad, 0)


def test_archive_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(2_000_000))
    monkeypatch.setattr(tabular, "_LIMIT", 1_000_000)
    with pytest.raises(ValueError, match="unpacks to 2000000 bytes, more than 1000000"):
        regression_npz(path, 0)


def test_uci_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`name` must be one of bostonHousing, .*'\.\./x'"):
        uci("../x", 0, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"`energy` was not found in .*no official address"):
        uci("energy", 0, tmp_path)
    (tmp_path / "uci").mkdir()
    write(tmp_path / "uci" / "energy.npz")
    with pytest.raises(ValueError, match=r"energy.npz` is corrupt"):
        uci("energy", 0, tmp_path)
    assert len(UCI_NAMES) == 7


def test_standardise_uses_training_statistics_only() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator) * torch.tensor([1.0, 1e-3, 1e3, 1.0]) + 5
    y = 3 * torch.randn(200, 1, generator=generator) - 7
    data = RegressionData(x[:150], y[:150], x[150:], y[150:])
    scaled, statistics = standardise(data)
    for values in (scaled.x_train, scaled.y_train):
        assert torch.allclose(values.mean(0), torch.zeros(1), atol=1e-4)
        assert torch.allclose(values.std(0, correction=0), torch.ones(1), atol=1e-4)
    elsewhere = RegressionData(data.x_train, data.y_train, data.x_test + 100, data.y_test * 9)
    assert torch.equal(standardise(elsewhere)[1].x_mean, statistics.x_mean)
    assert torch.equal(standardise(elsewhere)[0].x_train, scaled.x_train)
    expected = (data.x_test - data.x_train.mean(0)) / data.x_train.std(0, correction=0)
    assert torch.allclose(scaled.x_test, expected, rtol=1e-3, atol=1e-4)
    assert torch.allclose(statistics.restore_y(scaled.y_test), data.y_test, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-8, 12345.678, -3e10])
def test_constant_columns_are_safe(value: float) -> None:
    x = torch.full((7, 1), value)
    data = RegressionData(x, x, x + 2, x)
    scaled, statistics = standardise(data)
    assert statistics.x_std.item() == 1
    assert torch.equal(scaled.x_train, torch.zeros(7, 1))
    assert torch.equal(scaled.x_test, data.x_test - value)
    assert torch.isfinite(scaled.y_train).all()


def test_standardise_wants_training_rows() -> None:
    empty = torch.empty(0, 1)
    with pytest.raises(ValueError, match="`data` must have at least one training row"):
        standardise(RegressionData(empty, empty, empty, empty))
