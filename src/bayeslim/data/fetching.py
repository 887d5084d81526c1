"""Download of one file over http or https: verified and atomic."""

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from bayeslim.runtime.progress_bar import progress_bar

_LIMIT = 1 << 30  # bytes; the largest official file is CIFAR-10's archive, 0.17 GB


class DownloadError(OSError):
    """A file could not be fetched; the message says which, from where and why."""


def download(url: str, path: Path, sha256: str, *, progress: bool = False, max_bytes: int = _LIMIT) -> Path:
    """Fetch `url` into `path` so that `path` either holds the verified file or is left alone.

    Bytes go to a temporary file beside `path`, which takes its place once its SHA-256 is right. Several processes may
    ask for the same path: each renames a whole file.

    Args:
        url: an http or https address.
        path: the file to write; its folder is created.
        sha256: the expected checksum, 64 lower-case hexadecimal digits.
        progress: show a progress bar on a terminal.
        max_bytes: refuse anything larger.

    Returns:
        `path`.

    Raises:
        DownloadError: if the file cannot be reached, breaks off, is too large or has another checksum.

    Example:
        >>> source = idx_source("mnist", "t10k-labels-idx1-ubyte.gz")  # doctest: +SKIP
        >>> download(source.url, Path("labels.gz"), source.sha256)  # doctest: +SKIP
        PosixPath('labels.gz')
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"`url` must start with http:// or https://, got {url!r}: pass a web address")
    if path.is_file() and file_sha256(path) == sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=path.parent) as folder:
        part = Path(folder, path.name)
        try:
            _transfer(url, part, progress, max_bytes)
        except urllib.error.HTTPError as error:
            with error:
                raise DownloadError(f"{url} answered {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url} could not be fetched: {error}; try again") from error
        if (found := file_sha256(part)) != sha256:
            raise DownloadError(
                f"{url} has the SHA-256 {found}, expected {sha256}: the file was damaged on the way or has changed; "
                f"try again later or put a good copy at {path}"
            )
        os.replace(part, path)
    return path


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _transfer(url: str, path: Path, progress: bool, max_bytes: int) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "bayeslim", "Accept-Encoding": "identity"})
    with urllib.request.urlopen(request, timeout=30) as response, path.open("wb") as target:
        expected, received = response.length, 0
        bar = progress_bar(path.name, expected, lambda done, speed: f"{done / 1e6:.1f} MB", show=progress)
        with bar as advance:
            while chunk := response.read(1 << 16):
                received += target.write(chunk)
                if max(received, expected or 0) > max_bytes:
                    raise OSError(f"it has {max(received, expected or 0)} bytes or more, `max_bytes` is {max_bytes}")
                advance(len(chunk))
        if expected is not None and received < expected:
            raise OSError(f"it broke off after {received} of {expected} bytes")
        target.flush()
        os.fsync(target.fileno())
