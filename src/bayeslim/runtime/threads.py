"""Threads take turns where what belongs to the whole process is switched for a while."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["TURN", "Turns"]


class Turns:
    """A lock that a thread may take again while it holds it, and that nobody keeps from others by taking it often.

    A thread that lets go and takes it again at once, as training does between two steps, would mostly win against one
    that sleeps until it is free. Here who waits stands in a door, behind which everybody else comes.

    Example:
        >>> with TURN:
        ...     noise = torch.randn(3)
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Be free, also in a process that was forked while another thread had the turn."""
        held: Any = threading.RLock()
        self._take, self._let_go, self._is_mine = held.acquire, held.release, held._is_owned
        self._door = threading.Lock()

    def __enter__(self) -> None:
        """Wait until no other thread has the turn, and take it."""
        if self._is_mine():
            self._take()
        else:
            with self._door:
                self._take()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let go, if this is the outermost block."""
        self._let_go()


TURN = Turns()
"""Held while a network predicts, while torch's random state is another one for a while, and in every training step.

Modes, estimators and the random state belong to networks and to the process, not to a thread: a block that saves,
switches and restores one of them would undo what another thread has done meanwhile. Do not wait for another thread
inside such a block: it may be waiting for its turn.
"""

if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=TURN.renew)
