"""Make eager code draw the noise of compiled code, so that the two can be compared number by number."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from bayeslim.kernels import noise, reference
from bayeslim.kernels.context import now


@contextmanager
def compiled_noise() -> Iterator[None]:
    """Inside the block `normal_like` always hashes, and nothing draws by itself."""
    with reference(), patch.object(noise, "now", lambda tensor: now(tensor)._replace(compiling=True)):
        yield
