"""Reading of gzip, xz and plain files with a bound on what they may unpack to."""

import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

_CHUNK = 1 << 20


@contextlib.contextmanager
def open_compressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacked according to its suffix ``.gz``, ``.xz`` or neither.

    Damage that shows while the block reads becomes a ValueError that names the file.

    Args:
        path: the file.

    Returns:
        A context manager that gives a binary stream.

    Example:
        >>> with open_compressed(Path("labels.gz")) as stream:  # doctest: +SKIP
        ...     magic = stream.read(4)
    """
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    try:
        with opened(path, "rb") as stream:
            yield cast(BinaryIO, stream)
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, MemoryError) as error:
        why = "it asks for more memory than there is" if isinstance(error, MemoryError) else error
        raise ValueError(f"`{path}` is damaged ({why}): delete it and load the data again") from error


def read_up_to(stream: BinaryIO, count: int) -> bytearray:
    """Read `count` bytes, or fewer where the stream ends.

    Memory grows with what arrives: a stated size, however absurd, allocates nothing.
    """
    content = bytearray()
    while len(content) < count and (chunk := stream.read(min(_CHUNK, count - len(content)))):
        content += chunk
    return content


def read_bounded(path: Path, max_bytes: int) -> bytearray:
    """Return the unpacked content of a file that has at most `max_bytes` of it.

    No more than ``max_bytes + 1`` bytes are ever unpacked, however much the file would give.

    Args:
        path: a ``.gz``, ``.xz`` or plain file.
        max_bytes: the bound, in bytes after unpacking.

    Returns:
        The content.

    Example:
        >>> raw = read_bounded(Path("reviews.jsonl.xz"), 1 << 28)  # doctest: +SKIP
        >>> lines = raw.splitlines()  # doctest: +SKIP
    """
    with open_compressed(path) as stream:
        content = read_up_to(stream, max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(
            f"`{path}` unpacks to more than {max_bytes} bytes: it is not the file it is taken for; "
            "delete it and load the data again"
        )
    return content
