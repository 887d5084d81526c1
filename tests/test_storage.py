"""Files are whole, checked and free of pickle."""

import hashlib
import json
import math
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from bayeslim.storage import (
    FORMAT_VERSION,
    copy_atomically,
    read_tensors,
    remove_leftovers,
    write_atomically,
    write_tensors,
)
from contracts.cases import each

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
]


def split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file, by its specification."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def small(path: Path) -> Path:
    write_tensors(path, {"weight": torch.arange(6.0).view(2, 3)}, {"kind": "model", "n": 1})
    return path


def forged(path: Path, facts: str, version: str = str(FORMAT_VERSION)) -> Path:
    """A file with any facts at all and a checksum that fits them."""
    metadata = {
        "bayeslim_version": version,
        "bayeslim_facts": facts,
        "bayeslim_sha256": hashlib.sha256(facts.encode()).hexdigest(),
    }
    path.write_bytes(safetensors.torch.save({}, metadata))
    return path


@each("dtype", DTYPES)
@each("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_round_trip_of_every_type_and_shape(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    tensor = (torch.randn(shape) * 50).to(dtype)
    write_tensors(tmp_path / "file", {"a.b": tensor}, {})
    tensors, _ = read_tensors(tmp_path / "file")
    assert tensors["a.b"].dtype == dtype and torch.equal(tensors["a.b"], tensor)


def test_views_and_shared_tensors_are_written_in_full(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    parts = {"whole": base, "transposed": base.T, "row": base[1], "parameter": torch.nn.Parameter(base)}
    write_tensors(tmp_path / "file", parts, {})
    tensors, _ = read_tensors(tmp_path / "file")
    assert tensors.keys() == parts.keys()
    assert all(torch.equal(tensors[name], parts[name]) for name in parts)
    tensors["whole"].zero_()
    assert base.sum() == 66


def test_facts_come_back(tmp_path: Path) -> None:
    facts = {"text": 'naïve "quoted" \n', "list": [1, 2.5, None, True], "nested": {"x": {"y": []}}}
    write_tensors(tmp_path / "file", {}, facts | {"nan": math.nan, "inf": math.inf})
    _, found = read_tensors(tmp_path / "file")
    assert math.isnan(found.pop("nan")) and found.pop("inf") == math.inf
    assert found == facts


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    """Header, then raw numbers, and nothing else: no room for code."""
    content = small(tmp_path / "file").read_bytes()
    header, data = split(content)
    assert header.keys() == {"__metadata__", "weight"}
    assert header["weight"] == {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    assert struct.unpack("<6f", data) == (0, 1, 2, 3, 4, 5)
    metadata = header["__metadata__"]
    assert metadata["bayeslim_version"] == "1"
    assert json.loads(metadata["bayeslim_facts"]) == {"kind": "model", "n": 1}
    assert torch.equal(safetensors.torch.load_file(tmp_path / "file")["weight"].flatten(), torch.arange(6.0))


def test_no_file_is_ever_unpickled() -> None:
    package = Path(__file__).parent.parent / "src" / "bayeslim"
    for name in ("storage.py", "saving.py", "parts.py", "architecture.py", "training/checkpoint.py"):
        source = (package / name).read_text()
        assert not any(word in source for word in ("import pickle", "torch.load(", "eval(", "exec("))


def test_every_single_bit_flip_is_noticed(tmp_path: Path) -> None:
    """Whatever bit of the file changes, reading either fails or gives exactly the same."""
    file = small(tmp_path / "file")
    content, (expected, facts) = file.read_bytes(), read_tensors(file)
    for position in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << (position % 8)
        file.write_bytes(damaged)
        try:
            tensors, found = read_tensors(file)
        except ValueError:
            continue
        assert found == facts and tensors.keys() == expected.keys(), position
        assert torch.equal(tensors["weight"], expected["weight"]), position


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    file = small(tmp_path / "file")
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"file.*not a readable safetensors.*cut short"):
            read_tensors(file)


@pytest.mark.parametrize("extra", [b"\0", b"x" * 100])
def test_trailing_bytes_are_refused(tmp_path: Path, extra: bytes) -> None:
    file = small(tmp_path / "file")
    file.write_bytes(file.read_bytes() + extra)
    with pytest.raises(ValueError, match="not a readable safetensors"):
        read_tensors(file)


def tampered_value(header: dict[str, Any], data: bytes) -> bytes:
    return joined(header, struct.pack("<6f", 9, 1, 2, 3, 4, 5))


def tampered_facts(header: dict[str, Any], data: bytes) -> bytes:
    header["__metadata__"]["bayeslim_facts"] = '{"kind": "model", "n": 2}'
    return joined(header, data)


def tampered_shape(header: dict[str, Any], data: bytes) -> bytes:
    header["weight"]["shape"] = [3, 2]
    return joined(header, data)


def tampered_dtype(header: dict[str, Any], data: bytes) -> bytes:
    header["weight"]["dtype"] = "I32"
    return joined(header, data)


def tampered_name(header: dict[str, Any], data: bytes) -> bytes:
    header["other"] = header.pop("weight")
    return joined(header, data)


@pytest.mark.parametrize("tamper", [tampered_value, tampered_facts, tampered_shape, tampered_dtype, tampered_name])
def test_tampering_is_refused(tmp_path: Path, tamper: Callable[[dict[str, Any], bytes], bytes]) -> None:
    file = small(tmp_path / "file")
    file.write_bytes(tamper(*split(file.read_bytes())))
    with pytest.raises(ValueError, match="damaged: its checksum does not match; restore it from a copy"):
        read_tensors(file)


@pytest.mark.parametrize("version", ["2", "10", "0", "-1", "one", ""])
def test_other_versions_are_refused(tmp_path: Path, version: str) -> None:
    with pytest.raises(ValueError, match=f"format version {version}, this bayeslim reads"):
        read_tensors(forged(tmp_path / "file", "{}", version))


@pytest.mark.parametrize("facts", ["[1]", "3", "null", '"text"'])
def test_facts_of_another_kind_are_refused(tmp_path: Path, facts: str) -> None:
    with pytest.raises(ValueError, match="where facts belong"):
        read_tensors(forged(tmp_path / "file", facts))


@pytest.mark.parametrize("facts", ["", "{", "[" * 100_000 + "]" * 100_000])
def test_facts_that_are_no_json_are_refused(tmp_path: Path, facts: str) -> None:
    with pytest.raises(ValueError, match="no valid JSON"):
        read_tensors(forged(tmp_path / "file", facts))


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    safetensors.torch.save_file({"weight": torch.zeros(2)}, file)
    with pytest.raises(ValueError, match="not written by bayeslim: it lacks bayeslim_facts"):
        read_tensors(file)
    torch.save({"weight": torch.zeros(2)}, file)
    with pytest.raises(ValueError, match="not a readable safetensors"):
        read_tensors(file)
    with pytest.raises(FileNotFoundError, match="there is no file .*absent"):
        read_tensors(tmp_path / "absent")
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path)


def test_a_header_that_claims_terabytes_allocates_nothing(tmp_path: Path) -> None:
    header, data = split(small(tmp_path / "file").read_bytes())
    header["weight"] |= {"shape": [2**40], "data_offsets": [0, 2**42]}
    (tmp_path / "file").write_bytes(joined(header, data))
    with pytest.raises(ValueError, match="not a readable safetensors"):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, where: str
) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"old")

    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr(*((os, "fsync") if where == "fsync" else (Path, "replace")), fail)
    with pytest.raises(type(error)):
        write_atomically(file, b"new")
    monkeypatch.undo()
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_facts_that_json_cannot_say_leave_the_old_file(tmp_path: Path) -> None:
    file = small(tmp_path / "file")
    before = file.read_bytes()
    with pytest.raises(TypeError):
        write_tensors(file, {}, {"tensor": torch.zeros(1)})
    assert file.read_bytes() == before and os.listdir(tmp_path) == ["file"]


def test_the_data_reach_the_disk_before_the_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut between the two must not leave an empty file under the final name."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append("fsync") or fsync(descriptor))
    monkeypatch.setattr(Path, "replace", lambda a, b: events.append("replace") or replace(a, b))
    write_atomically(tmp_path / "file", b"new")
    assert events == ["fsync", "replace", "fsync"]


def test_what_was_read_does_not_follow_the_file(tmp_path: Path) -> None:
    """Mapped into memory, a network would change, or crash, when its file is overwritten in place."""
    file = small(tmp_path / "file")
    tensors, _ = read_tensors(file)
    file.write_bytes(bytes(len(file.read_bytes())))
    assert torch.equal(tensors["weight"], torch.arange(6.0).view(2, 3))


def test_reading_while_another_writes_gives_one_version_or_the_other(tmp_path: Path) -> None:
    file, done = tmp_path / "file", threading.Event()

    def write() -> None:
        for version in range(200):
            write_tensors(file, {"weight": torch.full((100,), float(version))}, {"version": version})
        done.set()

    write_tensors(file, {"weight": torch.zeros(100)}, {"version": 0})
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        tensors, facts = read_tensors(file)
        assert torch.equal(tensors["weight"], torch.full((100,), float(facts["version"])))
    thread.join()


def test_folders_are_made_and_the_umask_holds(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "er" / "file"
    before = os.umask(0o027)
    try:
        write_atomically(file, b"x")
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o640


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, not a folder")
    with pytest.raises(OSError, match="cannot write to the folder .*taken.*choose another `path`"):
        write_atomically(tmp_path / "taken" / "file", b"x")
    assert (tmp_path / "taken").read_text() == "a file, not a folder"


def test_tensors_of_a_network_in_use_can_be_written(tmp_path: Path) -> None:
    weight = torch.ones(2, requires_grad=True)
    tensors: dict[str, Tensor] = {"w": weight * 2}
    write_tensors(tmp_path / "file", tensors, {})
    assert torch.equal(read_tensors(tmp_path / "file")[0]["w"], torch.tensor([2.0, 2.0]))


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"cannot write .*file \(No space left on device\), which is left as it was: make room"
    ):
        write_atomically(tmp_path / "file", b"new")


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "write": lambda path, folder: write_atomically(path, b"new"),
    "copy": lambda path, folder: copy_atomically(source_in(folder), path),
}


def source_in(folder: Path) -> Path:
    source = folder / "source"
    source.write_bytes(b"new")
    return source


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder"])
def test_what_is_no_file_is_never_replaced(tmp_path: Path, kind: str, linked: bool, writer: str) -> None:
    """As root, a file would otherwise take the place of /dev/null."""
    place = tmp_path / "place"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        server = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(tmp_path)  # a long path does not fit a socket's address
        server.bind("place")
        os.chdir(here)
        server.close()
    path = tmp_path / "link" if linked else place
    if linked:
        path.symlink_to(place)
    before = stat.S_IFMT(place.lstat().st_mode)
    error, message = (IsADirectoryError, "name of a file in it")
    if kind != "folder":
        error, message = FileExistsError, "a device, pipe or socket .* choose another `path`"
    with pytest.raises(error, match=f"cannot write .*{path.name}.*{message}"):
        WRITERS[writer](path, tmp_path)
    assert stat.S_IFMT(place.lstat().st_mode) == before and path.is_symlink() == linked
    assert set(os.listdir(tmp_path)) <= {"place", "link", "source"}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path, dangling: bool, writer: str) -> None:
    (tmp_path / "far").mkdir()
    file = tmp_path / "far" / "file"
    if not dangling:
        file.write_bytes(b"old")
    (tmp_path / "inner").symlink_to(Path("far") / "file")
    (tmp_path / "outer").symlink_to(tmp_path / "inner")
    WRITERS[writer](tmp_path / "outer", tmp_path)
    assert (tmp_path / "outer").is_symlink() and (tmp_path / "inner").is_symlink()
    assert file.read_bytes() == b"new" and not file.is_symlink()
    assert os.listdir(tmp_path / "far") == ["file"]


def test_the_folder_of_a_dangling_link_is_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "later" / "file")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "later" / "file").read_bytes() == b"new"


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="a link that leads back to itself: remove it"):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").is_symlink() and len(os.listdir(tmp_path)) == 2


def test_a_copy_of_a_link_is_the_file_behind_it(tmp_path: Path) -> None:
    """A second link to the link would change with the file that it stands for."""
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    copy_atomically(tmp_path / "link", tmp_path / "copy")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "copy").read_bytes() == b"old" and not (tmp_path / "copy").is_symlink()


def test_a_copy_onto_itself_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    for _ in range(2):
        copy_atomically(tmp_path / "file", tmp_path / "copy")
    assert sorted(os.listdir(tmp_path)) == ["copy", "file"]


def test_leftovers_of_a_linked_file_are_removed(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    write_atomically(tmp_path / "link", b"x")
    (tmp_path / "far" / f".file.{'a' * 16}").write_bytes(b"half")
    remove_leftovers(tmp_path / "link")
    assert os.listdir(tmp_path / "far") == ["file"]
