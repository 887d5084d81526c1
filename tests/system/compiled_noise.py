"""Make eager code draw the noise of compiled code, so that the two can be compared number by number."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from bayeslim import noise


@contextmanager
def compiled_noise() -> Iterator[None]:
    """Inside the block `normal_like` always hashes."""
    with patch.object(noise, "compiling", lambda: True):
        yield
