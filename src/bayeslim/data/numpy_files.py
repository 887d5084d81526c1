"""Reading of .npy and .npz files that may be damaged or hostile."""

import lzma
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIMIT = 16 << 30  # bytes that an archive may unpack to
_ERRORS = (
    *(ValueError, TypeError, AttributeError, KeyError, EOFError, SyntaxError, MemoryError, OverflowError, RuntimeError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)
"""What numpy and zipfile raise for files that are not what they claim to be."""


@contextmanager
def reading_arrays(path: Path, max_bytes: int = _LIMIT) -> Iterator[None]:
    """Let the block read numpy's file `path`; whatever numpy makes of a bad one becomes a ValueError that names it.

    The caller passes ``allow_pickle=False``: a pickle could run code. What an archive states to unpack to is checked
    before, and zipfile unpacks no more than that.

    Args:
        path: a ``.npy`` or ``.npz`` file.
        max_bytes: refuse an archive that unpacks to more.

    Raises:
        ValueError: if the file is damaged, too large or holds something else.

    Example:
        >>> with reading_arrays(Path("scans.npz")):  # doctest: +SKIP
        ...     x = np.load("scans.npz", allow_pickle=False)["x"]
    """
    try:
        with path.open("rb") as file:
            zipped = file.read(2) == b"PK"
        if zipped:  # opened here first: numpy leaves a damaged one open
            with zipfile.ZipFile(path) as archive:
                size = sum(member.file_size for member in archive.infolist())
            if size > max_bytes:
                raise ValueError(f"it unpacks to {size} bytes, more than {max_bytes}")
        yield
    except _ERRORS as error:
        why = str(error).strip() or type(error).__name__
        raise ValueError(f"{path} cannot be read as numpy arrays ({why[:200]}): save it again with numpy") from error
