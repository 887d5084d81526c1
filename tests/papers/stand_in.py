"""A stand-in for what trains: it notes how it was called, so that a test of the settings takes no time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayeslim.schedules import Progress, Schedule


class Stopped(Exception):
    """Ends a run at the call that is looked at."""


class StandIn:
    """Notes the options of every call and the last positional ones; the call number `until` ends the run."""

    def __init__(self, until: int = 1) -> None:
        self.until = until
        self.calls: list[dict[str, Any]] = []
        self.arguments: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any, **options: Any) -> None:
        """Take note."""
        self.calls.append(options)
        self.arguments = arguments
        if len(self.calls) == self.until:
            raise Stopped


def values(schedule: Schedule, epochs: int, at: Sequence[int]) -> list[float]:
    """A schedule at some epochs of a run, one step each."""
    return [schedule(Progress(epoch, 1, epochs)) for epoch in at]
