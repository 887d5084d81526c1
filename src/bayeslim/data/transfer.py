"""Download of one file over http or https: resumable, verified, atomic."""

import contextlib
import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, BinaryIO
from urllib.parse import urlsplit

from bayeslim.storage import sync_folder

_CHUNK = 1 << 16
_LIMIT = 1 << 30  # bytes; the largest official file is CIFAR-10's archive, 0.17 GB


class DownloadError(OSError):
    """A file could not be fetched; the message says which, from where and why."""


class _InterruptedTransferError(DownloadError):
    """The connection broke off; what arrived is kept and another request can continue it."""


class _HttpRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not _is_web_address(newurl):
            fp.close()
            raise DownloadError(f"it redirects to {newurl!r}, which is not http or https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    path: Path,
    sha256: str,
    *,
    progress: bool = False,
    attempts: int = 3,
    timeout: float = 30.0,
    max_bytes: int = _LIMIT,
) -> Path:
    """Fetch `url` into `path` so that `path` either holds the verified file or is left alone.

    Bytes go to ``<path>.part``. A part left over from an earlier call is continued with a Range
    request. Once its SHA-256 is right the part is flushed to disk and renamed, which is atomic. A
    wrong checksum empties the part; if it had been continued, the file is fetched once more from
    the start. Where several processes ask for the same path, one downloads and the others wait.

    Args:
        url: an http or https address.
        path: the file to write; its folder is created.
        sha256: the expected checksum, 64 hexadecimal digits.
        progress: show a progress bar.
        attempts: requests made before a connection that keeps breaking off is given up.
        timeout: seconds without an answer after which a request counts as broken off.
        max_bytes: refuse anything larger.

    Returns:
        `path`.

    Example:
        >>> source = idx_source("mnist", "t10k-labels-idx1-ubyte.gz")  # doctest: +SKIP
        >>> download(source.url, Path("labels.gz"), source.sha256)  # doctest: +SKIP
        PosixPath('labels.gz')
    """
    if not _is_web_address(url):
        raise ValueError(f"`url` must start with http:// or https://, got {url!r}: pass a web address")
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(
            f"`sha256` must be 64 lower-case hexadecimal digits, got {sha256!r}: pass the published "
            "checksum of the file"
        )
    if attempts < 1:
        raise ValueError(f"`attempts` must be at least 1, got {attempts}: pass e.g. 3")
    part = path.with_name(path.name + ".part")
    with exclusive(path):
        if path.is_file() and file_sha256(path) == sha256:
            return path
        leftover = part.is_file() and part.stat().st_size > 0
        for fresh in (False, True) if leftover else (True,):
            if fresh:
                part.unlink(missing_ok=True)
            _complete(url, part, progress, attempts, timeout, max_bytes)
            if file_sha256(part) == sha256:
                os.replace(part, path)
                sync_folder(path.parent)
                return path
        found = file_sha256(part)
        part.unlink()
        raise DownloadError(
            f"{url} has the SHA-256 {found}, expected {sha256}: the file was damaged on the way or "
            f"has changed; try again later or put a good copy at {path}"
        )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process or thread at a time work on `path`, whose folder is created.

    The others wait. While it is held there is a file ``<path>.lock``. Without effect on Windows.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    lock = path.with_name(path.name + ".lock")
    while True:
        handle = lock.open("a")  # what is there, perhaps behind a link, is not emptied
        fcntl.flock(handle, fcntl.LOCK_EX)
        # The previous holder removes its lock file: a lock on a removed file protects nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                break
        handle.close()
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        handle.close()


def _complete(url: str, part: Path, progress: bool, attempts: int, timeout: float, max_bytes: int) -> None:
    for attempt in range(1, attempts + 1):
        try:
            with part.open("ab") as target:
                _transfer(url, target, progress, timeout, max_bytes)
                target.flush()
                os.fsync(target.fileno())
            return
        except _InterruptedTransferError:
            if attempt == attempts:
                raise
        except DownloadError:
            if part.stat().st_size == 0:
                part.unlink()
            raise


def _transfer(url: str, target: BinaryIO, progress: bool, timeout: float, max_bytes: int) -> None:
    """Make one request and append its body to `target`, from the byte that `target` ends at."""
    start = target.seek(0, os.SEEK_END)
    headers = {"User-Agent": "bayeslim", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    opener = urllib.request.build_opener(_HttpRedirects)
    try:
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and start:
                return  # nothing follows what is there already: the checksum decides
            raise DownloadError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DownloadError(f"{url} could not be reached: {reason}") from error
    with response:
        if response.status == http.HTTPStatus.OK:
            start = 0
            target.truncate(0)
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            raise DownloadError(f"{url} answered {response.status} to a request for its content")
        length = response.length
        expected = None if length is None else start + length
        if expected is not None and expected > max_bytes:
            raise DownloadError(f"{url} has {expected} bytes, more than `max_bytes`={max_bytes}")
        received = start
        with _progress_bar(progress, url, expected, start) as advance:
            while chunk := _read(response, url):
                received += len(chunk)
                if received > max_bytes:
                    raise DownloadError(f"{url} has more than `max_bytes`={max_bytes} bytes")
                target.write(chunk)
                advance(len(chunk))
        if expected is not None and received < expected:
            raise _InterruptedTransferError(
                f"{url} broke off after {received} of {expected} bytes: call again to continue"
            )


def _read(response: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _InterruptedTransferError(f"{url} broke off ({error}): call again to continue") from error


def _is_web_address(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")


@contextlib.contextmanager
def _progress_bar(shown: bool, url: str, total: int | None, completed: int) -> Iterator[Callable[[int], None]]:
    if not shown:
        yield lambda count: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns) as bar:
        task = bar.add_task(url.rsplit("/", 1)[-1], total=total, completed=completed)
        yield lambda count: bar.advance(task, count)
