import hashlib
import io
import random
import socket
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bayeslim.data import DownloadError, download, extract_tar
from bayeslim.data.cache import obtain
from bayeslim.data.sources import Source

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves its content at every path; the path chooses how it misbehaves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = 0
        self.content = CONTENT

    def url(self, behaviour: str = "plain") -> str:
        return f"http://127.0.0.1:{self.server_port}/{behaviour}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        behaviour = self.path.strip("/")
        self.server.requests += 1
        targets = {"elsewhere": self.server.url(), "ftp": "ftp://127.0.0.1/x", "local": "file:///etc/hostname"}
        if behaviour == "missing":
            return self.send_error(404, "Not Found")
        if behaviour in targets:
            self.send_response(302)
            self.send_header("Location", targets[behaviour])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        body = self.server.content
        self.send_response(200)
        if behaviour != "no-length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if behaviour == "breaks" else body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "set" / "file.bin"


@pytest.mark.parametrize("behaviour", ["plain", "no-length", "elsewhere"])
def test_a_file_is_fetched_once(server: Server, target: Path, behaviour: str) -> None:
    assert download(server.url(behaviour), target, SHA256) == target
    asked = server.requests
    assert download(server.url(behaviour), target, SHA256) == target
    assert (server.requests, target.read_bytes()) == (asked, CONTENT)
    assert list(target.parent.iterdir()) == [target]


def test_a_bad_file_is_replaced(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    assert download(server.url(), target, SHA256).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("breaks", "could not be fetched: it broke off after 150000 of 300000 bytes"),
        ("missing", "answered 404 Not Found"),
        ("ftp", "could not be fetched"),
        ("local", "answered 302"),
    ],
)
def test_what_fails_leaves_an_old_file_and_nothing_else(server: Server, target: Path, behaviour: str, why: str) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    with pytest.raises(DownloadError, match=why):
        download(server.url(behaviour), target, SHA256)
    assert [path.read_bytes() for path in target.parent.iterdir()] == [b"old"]


def test_a_wrong_checksum_leaves_nothing(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match=f"has the SHA-256 {SHA256}, expected 0000"):
        download(server.url(), target, "0" * 64)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("behaviour", ["plain", "no-length"])
def test_size_is_bounded(server: Server, target: Path, behaviour: str) -> None:
    with pytest.raises(DownloadError, match="`max_bytes` is 1000"):
        download(server.url(behaviour), target, SHA256, max_bytes=1000)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "/etc/hostname"])
def test_only_web_addresses_are_accepted(target: Path, url: str) -> None:
    with pytest.raises(ValueError, match="`url` must start with http"):
        download(url, target, SHA256)
    assert not target.parent.exists()


def test_offline_says_so(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        source = Source(f"http://127.0.0.1:{unused.getsockname()[1]}/a", SHA256, "toy/a")
        with pytest.raises(FileNotFoundError, match=r"could not be downloaded \(.*refused"):
            obtain("toy", ["toy/a"], source, root=tmp_path)


def packed(*members: str | tarfile.TarInfo) -> bytes:
    """A compressed archive whose named files all hold the content."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for member in members:
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.size = len(CONTENT)
            tar.addfile(member, io.BytesIO(CONTENT) if member.size else None)
    return archive.getvalue()


def archived(server: Server, *names: str) -> Source:
    """Where the server has an archive of these files, of which those in set/ are wanted."""
    server.content = packed(*names)
    return Source(server.url(), hashlib.sha256(server.content).hexdigest(), "s.tar.gz", members=("set/",))


def test_missing_files_are_fetched_by_several_at_once(server: Server, tmp_path: Path) -> None:
    """Each takes a whole file from the archive, whoever unpacked it; what is not wanted is not unpacked."""
    source = archived(server, "set/a.bin", "other/b.bin", "set/deep/c.bin")

    def load(_: int) -> bytes:
        return obtain("set", ["set/a.bin"], source, root=tmp_path).read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(load, range(4))) == [CONTENT] * 4
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["set/a.bin", "set/deep/c.bin"]
    assert {path.name for path in tmp_path.iterdir()} == {"set"}


def test_a_folder_that_is_there_is_completed(server: Server, tmp_path: Path) -> None:
    source = archived(server, "set/a.bin", "set/b.bin")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/own.txt").write_text("mine")
    assert obtain("set", ["set/b.bin"], source, root=tmp_path).read_bytes() == CONTENT
    assert {path.name for path in (tmp_path / "set").iterdir()} == {"a.bin", "b.bin", "own.txt"}


def link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("set/link")
    member.type, member.linkname = kind, "/etc"
    return member


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (packed("set/a", "../evil"), "outside the destination"),
        (packed("set/a", "set/../../evil"), "outside the destination"),
        (packed("set/a", link(tarfile.SYMTYPE)), "'set/link' is no file or folder"),
        (packed("set/a", link(tarfile.LNKTYPE)), "'set/link' is no file or folder"),
        (packed("set/a", link(tarfile.FIFOTYPE)), "'set/link' is no file or folder"),
        (packed("set/a", "set/b", "set/c", "set/d"), "beyond 1000000 bytes"),
        (packed("set/a", "set/b")[:400_000], "Compressed file ended"),
        (b"not a tar", "could not be opened"),
        (b"", "could not be opened"),
    ],
)
def test_archives_that_lead_elsewhere_or_are_damaged_leave_nothing(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.tar\.gz` cannot be unpacked \(.*{problem}"):
        extract_tar(tmp_path / "a.tar.gz", tmp_path / "out", max_bytes=1_000_000)
    assert list((tmp_path / "out").iterdir()) == []
