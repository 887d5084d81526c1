"""Where data lives on this computer, and how a missing file gets there.

A data folder holds one sub-folder per set (``mnist/``, ``cifar10/``, ``uci/``, ...). Three are
searched in turn: the `root` a caller names, the environment variable ``BAYESLIM_DATA``, and the
user's cache, ``$XDG_CACHE_HOME/bayeslim`` or ``~/.cache/bayeslim``.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from bayeslim.data.archive import extract_tar
from bayeslim.data.sources import Source, known_sha256
from bayeslim.data.transfer import download as download_file
from bayeslim.data.transfer import exclusive, file_sha256


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
                f"`root` must be an existing folder, got {os.fspath(root)!r}: create it or leave "
                "`root` out to search BAYESLIM_DATA and the user's cache"
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
    found = file_sha256(path)
    if found != sha256:
        raise ValueError(
            f"`{path}` is corrupt or not the published file: its SHA-256 is {found}, expected "
            f"{sha256}: delete it and load the data again"
        )


def locate(relative_paths: Sequence[str], root: str | os.PathLike[str] | None = None) -> Path:
    """Return the first of several alternative files that exists in a data folder, verified.

    A file whose published checksum is known is hashed before it is returned. One that does not
    match is an error, even if a later folder holds a good copy: nothing is used in part.

    Args:
        relative_paths: the accepted layouts of one file, e.g. ``["mnist/a.gz", "MNIST/raw/a"]``.
        root: searched before the other folders, see `data_folders`.

    Returns:
        The path of the file (or folder, where a layout names a folder).

    Example:
        >>> path = locate(["uci/concrete.npz"])  # doctest: +SKIP
        >>> path.name  # doctest: +SKIP
        'concrete.npz'
    """
    folders = data_folders(root)
    for folder in folders:
        for relative in relative_paths:
            path = folder / relative
            if path.exists():
                expected = known_sha256(relative)
                if expected is not None:
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
    """Return a file of the set `name`, fetching it from its official address where it is missing.

    A download goes to the first data folder that can be written to; an archive is unpacked there
    and then removed.

    Args:
        name: the set, for messages.
        relative_paths: accepted layouts, see `locate`.
        source: the official address, None where the set has none.
        root: searched before the other folders, see `data_folders`.
        download: whether the network may be used.
        progress: show a progress bar while downloading.

    Returns:
        The verified path.

    Example:
        >>> source = idx_source("mnist", "t10k-labels-idx1-ubyte.gz")  # doctest: +SKIP
        >>> obtain("mnist", [source.save_as], source, download=False).name  # doctest: +SKIP
        't10k-labels-idx1-ubyte.gz'
    """
    folders = data_folders(root)
    try:
        return locate(relative_paths, root)
    except FileNotFoundError:
        if source is None or not download:
            why = "it has no official address" if source is None else "download=False"
            raise FileNotFoundError(_missing(name, folders, why, relative_paths)) from None
    try:
        _fetch(source, next(filter(_writable, folders), folders[-1]), relative_paths, progress)
    except (OSError, ValueError) as error:
        raise FileNotFoundError(_missing(name, folders, str(error), relative_paths)) from error
    return locate(relative_paths, root)


def _fetch(source: Source, folder: Path, relative_paths: Sequence[str], progress: bool) -> None:
    target = folder / source.save_as
    with exclusive(target.with_name(target.name + ".fetch")):
        if any((folder / relative).exists() for relative in relative_paths):
            return  # another process was faster
        download_file(source.url, target, source.sha256, progress=progress)
        if source.members:
            extract_tar(target, folder, only=source.members)
            target.unlink()


def _writable(folder: Path) -> bool:
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    return existing.is_dir() and os.access(existing, os.W_OK)


def _missing(name: str, folders: Sequence[Path], why: str, relative_paths: Sequence[str]) -> str:
    return (
        f"`{name}` was not found in {', '.join(map(str, folders))} and could not be downloaded ({why}): put "
        f"{' or '.join(relative_paths)} there or set BAYESLIM_DATA"
    )
