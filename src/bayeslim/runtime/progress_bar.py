"""How far a long task is, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["epoch_bar", "progress_bar"]


@contextmanager
def progress_bar(
    what: str,
    total: int | None,
    note: Callable[[int, float], str] = lambda done, speed: "",
    *,
    show: bool = True,
    done: int = 0,
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on standard error while the block runs, if that is a terminal; yields what advances it.

    Args:
        what: is being done.
        total: the count at the end; None if that is unknown.
        note: text beside the bar, given the count so far and counts per second.
        show: False shows none.
        done: the count at the start.

    Example:
        >>> with progress_bar("training", total=1000) as advance:
        ...     advance()
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done, note=note(done, 0.0))

        def advance(count: int = 1) -> None:
            bar.advance(task, count)
            now = bar.tasks[0]
            bar.update(task, note=note(int(now.completed), now.speed or 0.0))

        yield advance


def epoch_bar(epochs: int, steps: int, *, show: bool, done: int = 0) -> AbstractContextManager[Callable[..., None]]:
    """A progress bar over the steps of a training run, which says the epoch.

    Args:
        epochs: in all.
        steps: of an epoch.
        show: False shows none.
        done: epochs done before.

    Example:
        >>> with epoch_bar(10, steps=100, show=True) as advance:
        ...     advance()
    """

    def epoch(count: int, speed: float) -> str:
        return f"epoch {min(count // steps + 1, epochs)}/{epochs}"

    return progress_bar("training", epochs * steps, epoch, show=show, done=done * steps)
