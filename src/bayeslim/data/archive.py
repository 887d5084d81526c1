"""Safe unpacking of tar archives."""

import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Self

_LIMIT = 4 << 30  # bytes; the largest official archive (IMDB) unpacks to 0.5 GB
_MOST_MEMBERS = 1_000_000  # IMDB has 100,021
_LONGEST_HEADER = 1 << 20  # bytes of a long name or of extended attributes; ours have none


class _Member(tarfile.TarInfo):
    """A member whose headers are short: tarfile reads one that precedes a member as a whole, whatever its size."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if not (found.isreg() or found.isdir() or found.islnk() or found.issym()) and found.size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header has {found.size} bytes")
        return found


def extract_tar(archive: Path, destination: Path, only: tuple[str, ...] = (), max_bytes: int = _LIMIT) -> None:
    """Unpack the regular files of a tar archive below `destination`, all of them or none.

    Members are written to a temporary folder beside the target and moved into place at the end, so
    an archive that breaks off leaves nothing behind. An absolute name, a ``..``, a link or a device
    is refused, as is an archive that states more than `max_bytes` of content or a million members:
    the archive is then not what it claims to be.

    Args:
        archive: a tar file, plain or compressed.
        destination: the folder that receives the members; created if missing.
        only: unpack the members whose name starts with one of these; empty means all.
        max_bytes: bound on the summed sizes of all members.

    Example:
        >>> extract_tar(Path("cifar-10-binary.tar.gz"), Path("data"))  # doctest: +SKIP
        >>> sorted(os.listdir("data/cifar-10-batches-bin"))[1]  # doctest: +SKIP
        'data_batch_1.bin'
    """
    destination.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=destination))
    try:
        _unpack(archive, staging, only, max_bytes)
        for entry in sorted(staging.iterdir()):
            _move(entry, destination / entry.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _unpack(archive: Path, staging: Path, only: tuple[str, ...], max_bytes: int) -> None:
    total = 0
    try:
        with tarfile.open(archive, "r:*", tarinfo=_Member) as tar:
            for number, member in enumerate(tar):
                if member.size < 0 or number >= _MOST_MEMBERS:
                    raise tarfile.TarError(f"member {number} has {member.size} bytes")
                total += member.size
                member.mtime = 0  # a date may be beyond what the system can set
                _check(archive, member, total, max_bytes)
                if member.isfile() and (not only or member.name.startswith(only)):
                    tar.extract(member, staging, filter="data")
    except (tarfile.TarError, EOFError, OverflowError, MemoryError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"`{archive}` is not a complete tar archive ({error}): delete it and load again") from error


def _check(archive: Path, member: tarfile.TarInfo, total: int, max_bytes: int) -> None:
    # tarfile's "data" filter strips a leading slash silently and follows harmless links; neither
    # occurs in the archives we know, so both are refused outright.
    name = PurePosixPath(member.name.replace("\\", "/"))
    windows_drive = ":" in name.parts[0] if name.parts else False
    if name.is_absolute() or ".." in name.parts or windows_drive:
        raise ValueError(
            f"`{archive}` has the member {member.name!r}, which points outside the folder it is "
            "unpacked to: do not use this archive"
        )
    if not (member.isfile() or member.isdir()):
        raise ValueError(
            f"`{archive}` has the member {member.name!r}, which is neither a file nor a folder: do not use this archive"
        )
    if total > max_bytes:
        raise ValueError(
            f"`{archive}` unpacks to more than {max_bytes} bytes: check that it is the data set's "
            "archive, or raise `max_bytes`"
        )


def _move(source: Path, target: Path) -> None:
    """Move a file or folder; an existing folder is completed file by file."""
    if source.is_dir() and target.is_dir():
        for entry in sorted(source.iterdir()):
            _move(entry, target / entry.name)
    else:
        os.replace(source, target)
