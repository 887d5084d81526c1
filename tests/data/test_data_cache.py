import hashlib
from pathlib import Path

import pytest

from bayeslim.data import cache
from bayeslim.data.cache import data_folders, locate, obtain
from bayeslim.data.sources import (
    CIFAR10_SOURCE,
    IMDB_SOURCE,
    KNOWN_SHA256,
    Source,
    check_split,
    idx_source,
    known_sha256,
)


def put(path: Path, content: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_folders_are_searched_in_order(tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_folders() == (isolated,)
    monkeypatch.setenv("BAYESLIM_DATA", str(tmp_path / "named"))
    assert data_folders(tmp_path) == (tmp_path, tmp_path / "named", isolated)

    in_cache = put(isolated / "a/b")
    assert locate(["a/b"], tmp_path) == in_cache
    in_named = put(tmp_path / "named/a/b")
    assert locate(["a/b"], tmp_path) == in_named
    in_root = put(tmp_path / "a/b")
    assert locate(["a/b"], tmp_path) == in_root
    assert locate(["other/b", "a/b"]) == in_named


def test_the_cache_defaults_to_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for value in ("", "relative/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert data_folders() == (Path("/home/somebody/.cache/bayeslim"),)
    monkeypatch.setenv("BAYESLIM_DATA", "")
    assert len(data_folders()) == 1


def test_a_root_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match=r"`root` must be an existing folder.*nowhere"):
        data_folders(tmp_path / "nowhere")


def test_a_missing_file_names_what_was_looked_for_and_where(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none of a/b, c/d was found") as caught:
        locate(["a/b", "c/d"], tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "BAYESLIM_DATA" in str(caught.value)


@pytest.mark.parametrize(
    "relative",
    ["mnist/t10k-labels-idx1-ubyte.gz", "MNIST/raw/t10k-labels-idx1-ubyte.gz"],
)
def test_a_corrupt_file_is_named_and_not_returned(
    tmp_path: Path, isolated: Path, relative: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = put(tmp_path / relative, b"damaged")
    good = put(isolated / relative, b"good")
    monkeypatch.setitem(KNOWN_SHA256, "mnist/t10k-labels-idx1-ubyte.gz", hashlib.sha256(b"good").hexdigest())
    with pytest.raises(ValueError, match="is corrupt") as caught:
        locate([relative], tmp_path)
    assert str(bad) in str(caught.value)
    assert locate([relative]) == good


def test_known_facts_are_well_formed() -> None:
    assert all(len(value) == 64 and int(value, 16) for value in KNOWN_SHA256.values())
    assert len(set(KNOWN_SHA256.values())) == len(KNOWN_SHA256) == 24
    nested = known_sha256("cifar10/cifar-10-batches-bin/test_batch.bin")
    assert nested == KNOWN_SHA256["cifar-10-batches-bin/test_batch.bin"]
    assert known_sha256("mnist/t10k-labels-idx1-ubyte") is None
    for name in ("mnist", "fashion-mnist"):
        source = idx_source(name, "train-images-idx3-ubyte.gz")
        assert source.save_as in KNOWN_SHA256
        assert source.url.startswith("http")
    for source in (CIFAR10_SOURCE, IMDB_SOURCE):
        assert len(source.sha256) == 64
        assert source.members


def test_split_names() -> None:
    check_split("train")
    with pytest.raises(ValueError, match="`split` must be 'train' or 'test', got 'valid'"):
        check_split("valid")


SOURCE = Source("https://example.org/a.bin", "0" * 64, "toy/a.bin")


def test_obtain_says_why_a_set_is_missing(tmp_path: Path) -> None:
    for source, download, why in (
        (None, True, "it has no official address"),
        (SOURCE, False, "download=False"),
        (SOURCE, True, "https://example.org/a.bin could not be fetched"),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            obtain("toy", ["toy/a.bin"], source, root=tmp_path, download=download)
        message = str(caught.value)
        assert message.startswith(f"`toy` was not found in {tmp_path}, ")
        assert f"could not be downloaded ({why}" in message
        assert "put toy/a.bin there or set BAYESLIM_DATA" in message


def test_obtain_does_not_replace_a_corrupt_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "uci/energy.npz", b"damaged")
    monkeypatch.setattr(cache, "download_file", lambda *a, **k: pytest.fail("must not download"))
    with pytest.raises(ValueError, match="is corrupt"):
        obtain("energy", ["uci/energy.npz"], SOURCE, root=tmp_path)


def test_downloads_go_to_the_first_writable_folder(
    tmp_path: Path, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def pretend(url: str, path: Path, sha256: str, *, progress: bool) -> Path:
        asked.append(path)
        return put(path)

    monkeypatch.setattr(cache, "download_file", pretend)
    monkeypatch.setattr(cache.os, "access", lambda path, mode: Path(path) != tmp_path)
    assert obtain("toy", ["toy/a.bin"], SOURCE, root=tmp_path) == isolated / "toy/a.bin"
    assert asked == [isolated / "toy/a.bin"]
