"""Where data lives on this computer, and how a missing file gets there.

A data folder holds one sub-folder per set (``mnist/``, ``cifar-10-batches-bin/``, ``uci/``, ...). Three are
searched in turn: the `root` a caller names, the environment variable ``BAYESLIM_DATA``, and the
user's cache, ``$XDG_CACHE_HOME/bayeslim`` or ``~/.cache/bayeslim``.
"""

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bayeslim.data.archive import extract_tar
from bayeslim.data.fetching import download as download_file
from bayeslim.data.fetching import file_sha256
from bayeslim.data.sources import Source, known_sha256


def data_folders(root: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched for data, first choice first.

    Args:
        root: a folder to search before the others; it must exist.

    Returns:
        `root`, ``$BAYESLIM_DATA`` (both only if given) and the user's cache. The last two need not
        exist.

    Example:
        >>> folders = data_folders()
        >>> folders[-1].name
        'bayeslim'
    """
    folders: list[Path] = []
    if root is not None:
        if not Path(root).is_dir():
            raise NotADirectoryError(
                f"`root` must be an existing folder, got {os.fspath(root)!r}: create it, or leave it out to search "
                "BAYESLIM_DATA and the user's cache"
            )
        folders.append(Path(root))
    if named := os.environ.get("BAYESLIM_DATA"):
        folders.append(Path(named).expanduser())
    cache = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path there is to be ignored.
    base = Path(cache) if cache and Path(cache).is_absolute() else Path.home() / ".cache"
    return (*folders, base / "bayeslim")


def verify(path: Path, sha256: str) -> None:
    """Raise a ValueError that names `path` unless its SHA-256 is `sha256`."""
    if (found := file_sha256(path)) != sha256:
        raise ValueError(
            f"`{path}` is corrupt or not the published file: its SHA-256 is {found}, expected {sha256}: "
            "delete it and load the data again"
        )


def locate(relative_paths: Sequence[str], root: str | os.PathLike[str] | None = None) -> Path:
    """Return the first of several alternative files or folders that exists in a data folder, verified.

    A file whose published checksum is known is hashed first. One that does not match is an error, even if a later
    folder holds a good copy.

    Args:
        relative_paths: the accepted layouts of one file, e.g. ``["mnist/a.gz", "MNIST/raw/a"]``.
        root: searched before the other folders, see `data_folders`.

    Example:
        >>> locate(["uci/concrete.npz"]).name  # doctest: +SKIP
        'concrete.npz'
    """
    folders = data_folders(root)
    for path, relative in ((folder / relative, relative) for folder in folders for relative in relative_paths):
        if path.exists():
            if (expected := known_sha256(relative)) is not None:
                verify(path, expected)
            return path
    raise FileNotFoundError(
        f"none of {', '.join(relative_paths)} was found in {', '.join(map(str, folders))}: put one of them "
        "there or set BAYESLIM_DATA to the folder that holds it"
    )


def obtain(
    name: str,
    relative_paths: Sequence[str],
    source: Source | None,
    *,
    root: str | os.PathLike[str] | None = None,
    download: bool = True,
    progress: bool = False,
) -> Path:
    """Return the path of a file of the set `name`, fetched from its official address where no data folder has it.

    A download goes to the first data folder that can be written to, archives unpacked.

    Args:
        name: the set, for messages.
        relative_paths: accepted layouts, see `locate`.
        source: the official address, None where the set has none.
        root: searched before the other folders, see `data_folders`.
        download: whether the network may be used.
        progress: show a progress bar while downloading.

    Raises:
        FileNotFoundError: if it is nowhere and could not be fetched; the message says why.
        ValueError: if a file is not the published one.
    """
    folders = data_folders(root)
    with contextlib.suppress(FileNotFoundError):
        return locate(relative_paths, root)
    try:
        if source is None or not download:
            raise OSError("it has no official address" if source is None else "download=False")
        _fetch(source, next(filter(_writable, folders), folders[-1]), progress)
        return locate(relative_paths, root)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(
            f"`{name}` was not found in {', '.join(map(str, folders))} and could not be downloaded ({error}): put "
            f"{' or '.join(relative_paths)} there or set BAYESLIM_DATA"
        ) from error


def _fetch(source: Source, folder: Path, progress: bool) -> None:
    if not source.members:
        download_file(source.url, folder / source.save_as, source.sha256, progress=progress)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as staging:
        archive = download_file(source.url, Path(staging, source.save_as), source.sha256, progress=progress)
        extract_tar(archive, folder, only=source.members)


def _writable(folder: Path) -> bool:
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    return existing.is_dir() and os.access(existing, os.W_OK)
