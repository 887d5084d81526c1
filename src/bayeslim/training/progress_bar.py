"""How far the training is, on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(show: bool, done: int, epochs: int, steps: int) -> Iterator[Callable[[], None]]:
    """A progress bar over all steps, on a terminal; yields what advances it.

    Args:
        show: False shows none.
        done: epochs done before.
        epochs: in all.
        steps: of an epoch.

    Example:
        >>> with progress_bar(True, 0, epochs=10, steps=100) as advance:
        ...     advance()
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("training"),
        BarColumn(),
        TextColumn("epoch {task.fields[epoch]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (show and console.is_terminal), transient=True) as bar:
        task = bar.add_task("", total=epochs * steps, completed=done * steps, epoch=f"{done + 1}/{epochs}")

        def advance() -> None:
            bar.advance(task)
            epoch = min(epochs, int(bar.tasks[0].completed) // steps + 1)
            bar.update(task, epoch=f"{epoch}/{epochs}")

        yield advance
