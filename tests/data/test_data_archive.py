import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from bayeslim.data import extract_tar


def pack(path: Path, *members: tarfile.TarInfo | str, content: bytes = b"hello") -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.size = len(content)
            tar.addfile(member, io.BytesIO(content) if member.size else None)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_files_are_unpacked(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/one.txt", "set/deep/two.txt")
    extract_tar(archive, tmp_path / "out")
    assert (tmp_path / "out/set/one.txt").read_bytes() == b"hello"
    assert (tmp_path / "out/set/deep/two.txt").read_bytes() == b"hello"
    assert os.listdir(tmp_path / "out") == ["set"]


def test_an_existing_folder_is_completed(tmp_path: Path) -> None:
    (tmp_path / "out/set").mkdir(parents=True)
    (tmp_path / "out/set/own.txt").write_text("mine")
    (tmp_path / "out/set/one.txt").write_text("broken")
    extract_tar(pack(tmp_path / "a.tar.gz", "set/one.txt", "set/two.txt"), tmp_path / "out")
    found = {path.name: path.read_text() for path in (tmp_path / "out/set").iterdir()}
    assert found == {"own.txt": "mine", "one.txt": "hello", "two.txt": "hello"}


def test_only_chosen_members_are_unpacked(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/pos/1.txt", "set/unsup/1.txt")
    extract_tar(archive, tmp_path / "out", only=("set/pos/", "set/neg/"))
    assert os.listdir(tmp_path / "out/set") == ["pos"]


@pytest.mark.parametrize("name", ["../evil.txt", "set/../../evil.txt", "/evil.txt", "set\\..\\..\\evil.txt", "C:/evil"])
def test_path_traversal_is_refused(tmp_path: Path, name: str) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/good.txt", name)
    with pytest.raises(ValueError, match="points outside") as caught:
        extract_tar(archive, tmp_path / "out")
    assert str(archive) in str(caught.value)
    assert os.listdir(tmp_path / "out") == []
    assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "out"]


@pytest.mark.parametrize(
    "member",
    [link("set/l", "/etc"), link("set/l", "good.txt", tarfile.LNKTYPE), link("p", "", tarfile.FIFOTYPE)],
)
def test_links_and_devices_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/good.txt", member)
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        extract_tar(archive, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_a_truncated_archive_leaves_nothing(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/one", "set/two", content=os.urandom(50_000))
    archive.write_bytes(archive.read_bytes()[:70_000])
    with pytest.raises(ValueError, match=r"a\.tar\.gz` is not a complete tar archive"):
        extract_tar(archive, tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("content", [b"", b"not a tar", gzip.compress(b"nor this", mtime=0)])
def test_what_is_not_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete tar archive"):
        extract_tar(tmp_path / "a.tar.gz", tmp_path / "out")


def test_an_archive_bomb_is_refused(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/zeros", content=bytes(5_000_000))
    with pytest.raises(ValueError, match="unpacks to more than 1000000 bytes"):
        extract_tar(archive, tmp_path / "out", max_bytes=1_000_000)
    assert os.listdir(tmp_path / "out") == []


def test_damage_under_xz_is_refused(tmp_path: Path) -> None:
    archive = pack(tmp_path / "a.tar.gz", "set/one.txt", content=os.urandom(50_000))
    packed = bytearray(lzma.compress(gzip.decompress(archive.read_bytes())))
    packed[len(packed) // 2] ^= 255
    (tmp_path / "a.tar.xz").write_bytes(packed)
    with pytest.raises(ValueError, match="not a complete tar archive"):
        extract_tar(tmp_path / "a.tar.xz", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_dates_beyond_the_system_are_left_out(tmp_path: Path) -> None:
    member = tarfile.TarInfo("set/one.txt")
    member.size, member.mtime = 5, 2**62
    extract_tar(pack(tmp_path / "a.tar.gz", member), tmp_path / "out")
    assert (tmp_path / "out/set/one.txt").read_bytes() == b"hello"


def test_a_negative_size_cannot_hide_a_large_one(tmp_path: Path) -> None:
    member = tarfile.TarInfo("set/one.txt")
    member.size = 5
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12  # minus one, in base 256
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + b"hello" + bytes(507 + 1024))
    with pytest.raises(ValueError, match="not a complete tar archive"):
        extract_tar(tmp_path / "a.tar", tmp_path / "out")


def test_a_million_empty_files_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeslim.data.archive._MOST_MEMBERS", 2)
    extract_tar(pack(tmp_path / "a.tar.gz", "1", "2"), tmp_path / "out")
    with pytest.raises(ValueError, match="not a complete tar archive"):
        extract_tar(pack(tmp_path / "a.tar.gz", "1", "2", "3"), tmp_path / "new")
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("before", [0, 1])
def test_long_headers_are_refused_unread(tmp_path: Path, kind: bytes, before: int) -> None:
    archive, size = tmp_path / "long.tar.gz", 1 << 26
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, size
    plain = tarfile.TarInfo("plain").tobuf(tarfile.USTAR_FORMAT)
    with gzip.open(archive, "wb", 1) as stream:
        stream.write(before * plain + header.tobuf(tarfile.USTAR_FORMAT) + bytes(size))
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"not a complete tar archive .*a header has {size} bytes|could not be opened"):
        extract_tar(archive, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 4
    assert list((tmp_path / "out").iterdir()) == []
