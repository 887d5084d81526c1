"""Reading of gzip, xz and plain files with a bound on what they may unpack to."""

import gzip
import lzma
import zlib
from pathlib import Path


def read_first(path: Path, count: int) -> bytearray:
    """Read `count` bytes of a file, or all if it has fewer, unpacked by its suffix ``.gz``, ``.xz`` or neither.

    Memory grows with what arrives: a stated size, however absurd, allocates nothing. Damage is a ValueError.
    """
    content = bytearray()
    try:
        with {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)(path, "rb") as stream:
            while len(content) < count and (chunk := stream.read(min(1 << 20, count - len(content)))):
                content += chunk
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error, MemoryError) as error:
        why = "it asks for more memory than there is" if isinstance(error, MemoryError) else error
        raise ValueError(f"`{path}` is damaged ({why}): delete it and load the data again") from error
    return content


def read_bounded(path: Path, max_bytes: int) -> bytearray:
    """Read a file as `read_first` does; a ValueError if it unpacks to more than `max_bytes`."""
    content = read_first(path, max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(
            f"`{path}` unpacks to more than {max_bytes} bytes: it is not the file it is taken for; "
            "delete it and load the data again"
        )
    return content
