"""Safe unpacking of tar archives."""

import lzma
import os
import tarfile
import tempfile
import zlib
from pathlib import Path

_LIMIT = 4 << 30  # bytes; the largest official archive (IMDB) unpacks to 0.5 GB


def extract_tar(archive: Path, destination: Path, only: tuple[str, ...] = (), max_bytes: int = _LIMIT) -> None:
    """Unpack the regular files of a tar archive below `destination`, all of them or none.

    Members are written to a temporary folder beside the target and moved into place at the end, so
    an archive that breaks off leaves nothing behind.

    Args:
        archive: a tar file, plain or compressed.
        destination: the folder that receives the members; created if missing.
        only: unpack the members whose name starts with one of these; empty means all.
        max_bytes: bound on the summed sizes of all members.

    Raises:
        ValueError: if it is damaged, unpacks to more than `max_bytes`, or has a link, a device or a name that leads
            out of the folder.

    Example:
        >>> extract_tar(Path("cifar-10-binary.tar.gz"), Path("data"))  # doctest: +SKIP
        >>> sorted(os.listdir("data/cifar-10-batches-bin"))[1]  # doctest: +SKIP
        'data_batch_1.bin'
    """
    destination.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=destination) as staging:
        total = 0
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    total += max(member.size, 0)
                    if total > max_bytes or not (member.isfile() or member.isdir()):
                        raise tarfile.TarError(f"{member.name!r} is no file or folder, or beyond {max_bytes} bytes")
                    member.mtime = 0  # a date may be beyond what the system can set
                    if member.isfile() and (not only or member.name.startswith(only)):
                        tar.extract(member, staging, filter="data")  # refuses names that lead out of the folder
        except (tarfile.TarError, EOFError, OverflowError, MemoryError, lzma.LZMAError, zlib.error) as error:
            raise ValueError(f"`{archive}` cannot be unpacked ({error}): delete it and load the data again") from error
        for entry in Path(staging).iterdir():
            _move(entry, destination / entry.name)


def _move(source: Path, target: Path) -> None:
    """Move a file or a folder as a whole; a folder that is there already is completed file by file."""
    try:
        os.replace(source, target)
    except OSError:
        if not (source.is_dir() and target.is_dir()):
            raise
        for entry in source.iterdir():
            _move(entry, target / entry.name)
