import hashlib
import io
import os
import random
import socket
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bayeslim.data import DownloadError, download
from bayeslim.data.cache import obtain
from bayeslim.data.sources import Source
from bayeslim.data.transfer import exclusive

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves its content at every path; the path chooses how it misbehaves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.breaks_left = 0
        self.content = CONTENT

    def url(self, behaviour: str = "plain") -> str:
        return f"http://127.0.0.1:{self.server_port}/{behaviour}"


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        behaviour = self.path.strip("/")
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        if behaviour == "missing":
            return self.send_error(404, "Not Found")
        if behaviour == "elsewhere":
            return self.redirect(self.server.url())
        if behaviour == "ftp":
            return self.redirect("ftp://127.0.0.1/x")
        if behaviour == "local":
            return self.redirect("file:///etc/hostname")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if behaviour == "no-ranges":
            start = 0
        if start and start >= len(self.server.content):
            return self.send_error(416)
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        if start:
            stated = start + 1 if behaviour == "wrong-range" else start
            total = len(self.server.content)
            self.send_header("Content-Range", f"bytes {stated}-{total - 1}/{total}")
        if behaviour != "no-length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if behaviour == "breaks" and self.server.breaks_left:
            self.server.breaks_left -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def redirect(self, target: str) -> None:
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Content-Length", "0")
        self.end_headers()


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


def leftovers(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path != target)


@pytest.mark.parametrize("behaviour", ["plain", "no-length", "elsewhere"])
def test_a_file_is_fetched(server: Server, target: Path, behaviour: str) -> None:
    assert download(server.url(behaviour), target, SHA256) == target
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == []


def test_folders_that_cannot_be_opened_hold_fetched_files(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not flushed to disk then, as everywhere in bayeslim."""
    really = os.open

    def closed(path: str | Path, *options: int) -> int:
        if Path(path).is_dir():
            raise PermissionError(path)
        return really(path, *options)

    monkeypatch.setattr(os, "open", closed)
    assert download(server.url(), target, SHA256).read_bytes() == CONTENT


def test_a_good_file_is_not_fetched_again(server: Server, target: Path) -> None:
    download(server.url(), target, SHA256)
    download(server.url(), target, SHA256)
    assert len(server.ranges) == 1


def test_a_bad_file_is_replaced(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"old")
    download(server.url(), target, SHA256)
    assert target.read_bytes() == CONTENT


def test_a_part_is_continued(server: Server, target: Path) -> None:
    target.parent.mkdir()
    part = target.with_name("file.bin.part")
    part.write_bytes(CONTENT[:123_456])
    download(server.url(), target, SHA256)
    assert server.ranges == ["bytes=123456-"]
    assert target.read_bytes() == CONTENT
    assert leftovers(target) == []


def test_a_broken_connection_is_continued(server: Server, target: Path) -> None:
    server.breaks_left = 2
    download(server.url("breaks"), target, SHA256)
    assert server.ranges == [None, "bytes=150000-", "bytes=225000-"]
    assert target.read_bytes() == CONTENT


def test_a_connection_that_keeps_breaking_leaves_a_part_for_the_next_call(server: Server, target: Path) -> None:
    server.breaks_left = 2
    with pytest.raises(DownloadError, match="broke off after 225000 of 300000 bytes"):
        download(server.url("breaks"), target, SHA256, attempts=2)
    assert not target.exists()
    assert leftovers(target) == ["file.bin.part"]
    download(server.url("breaks"), target, SHA256)
    assert server.ranges[-1] == "bytes=225000-"
    assert target.read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    download(server.url("no-ranges"), target, SHA256)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("damage", [b"x" * 1000, b"x" * 300_000, CONTENT + b"x"])
def test_a_part_of_another_file_is_thrown_away(server: Server, target: Path, damage: bytes) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(damage)
    download(server.url(), target, SHA256)
    assert server.ranges == [f"bytes={len(damage)}-", None]
    assert target.read_bytes() == CONTENT


def test_a_complete_part_is_only_verified(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT)
    download(server.url(), target, SHA256)
    assert target.read_bytes() == CONTENT
    assert server.ranges == ["bytes=300000-"]


def test_a_range_that_was_not_asked_for_is_refused(server: Server, target: Path) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(CONTENT[:1000])
    with pytest.raises(DownloadError, match="answered 206"):
        download(server.url("wrong-range"), target, SHA256)
    assert not target.exists()


def test_a_wrong_checksum_leaves_nothing(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match=f"has the SHA-256 {SHA256}, expected 0000"):
        download(server.url(), target, "0" * 64)
    assert list(target.parent.iterdir()) == []


def test_a_missing_page_leaves_nothing(server: Server, target: Path) -> None:
    with pytest.raises(DownloadError, match="answered 404 Not Found"):
        download(server.url("missing"), target, SHA256)
    assert list(target.parent.iterdir()) == []
    assert len(server.ranges) == 1


@pytest.mark.parametrize("behaviour", ["plain", "no-length"])
def test_size_is_bounded(server: Server, target: Path, behaviour: str) -> None:
    with pytest.raises(DownloadError, match="`max_bytes`=1000"):
        download(server.url(behaviour), target, SHA256, max_bytes=1000)
    assert not target.exists()


@pytest.mark.parametrize("behaviour", ["ftp", "local"])
def test_redirects_stay_on_the_web(server: Server, target: Path, behaviour: str) -> None:
    with pytest.raises(DownloadError):
        download(server.url(behaviour), target, SHA256)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://example.org/x", "/etc/hostname"])
def test_only_web_addresses_are_accepted(target: Path, url: str) -> None:
    with pytest.raises(ValueError, match="`url` must start with http"):
        download(url, target, SHA256)
    assert not target.parent.exists()


def test_arguments_are_checked(target: Path) -> None:
    with pytest.raises(ValueError, match="`sha256` must be 64"):
        download("http://127.0.0.1/", target, "abc")
    with pytest.raises(ValueError, match="`attempts` must be at least 1, got 0"):
        download("http://127.0.0.1/", target, SHA256, attempts=0)


def test_offline_says_so(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        source = Source(f"http://127.0.0.1:{unused.getsockname()[1]}/a", SHA256, "toy/a")
        with pytest.raises(FileNotFoundError, match=r"could not be downloaded \(.*refused\)"):
            obtain("toy", ["toy/a"], source, root=tmp_path)


def test_obtain_downloads_what_is_missing(server: Server, tmp_path: Path) -> None:
    source = Source(server.url(), SHA256, "toy/a.bin")
    for _ in range(2):
        path = obtain("toy", ["toy/a.bin"], source, root=tmp_path)
        assert path.read_bytes() == CONTENT
    assert len(server.ranges) == 1


def test_concurrent_downloads_share_one_transfer(server: Server, target: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(download, server.url(), target, SHA256) for _ in range(4)]
        assert {task.result() for task in tasks} == {target}
    assert len(server.ranges) == 1
    assert leftovers(target) == []


def test_concurrent_loads_unpack_an_archive_once(server: Server, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("set/a.bin")
        member.size = len(CONTENT)
        tar.addfile(member, io.BytesIO(CONTENT))
    server.content = packed.getvalue()
    digest = hashlib.sha256(server.content).hexdigest()
    source = Source(server.url(), digest, "s.tar.gz", members=("set/",))

    def load(_: int) -> bytes:
        return obtain("set", ["set/a.bin"], source, root=tmp_path).read_bytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(load, range(4))) == [CONTENT] * 4
    assert len(server.ranges) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_progress_is_shown_on_request(server: Server, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download(server.url(), target, SHA256, progress=True)
    assert "plain" in capsys.readouterr().out


def test_names_of_files_are_no_markup(server: Server, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download(server.url("plain/[red]x.gz"), target, SHA256, progress=True)
    assert "[red]x.gz" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="there is no lock")
def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "file.lock").symlink_to(tmp_path / "precious")
    with exclusive(tmp_path / "file"):
        assert (tmp_path / "precious").read_text() == "kept"
