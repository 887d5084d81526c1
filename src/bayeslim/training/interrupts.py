"""Stop at a safe place when asked to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["StopRequest", "stop_between_steps"]


class StopRequest:
    """Set once SIGINT or SIGTERM arrives; `check` then ends the run."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def check(self) -> None:
        """Raise KeyboardInterrupt or SystemExit if a stop was requested."""
        if self.signal == signal.SIGINT:
            raise KeyboardInterrupt("stopped between two training steps")
        if self.signal is not None:
            raise SystemExit(128 + self.signal)


@contextmanager
def stop_between_steps() -> Iterator[StopRequest]:
    """Defer SIGINT and SIGTERM to the next `check`, so that no step or checkpoint is cut in two.

    A signal after the last `check` takes effect at the end of the block. A second SIGINT stops at once.
    Outside the main thread, where Python takes no signals, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def remember(number: int, frame: FrameType | None) -> None:
        if request.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    request.check()
