"""From the signature of a function, or the fields of a dataclass, to a command line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bayeslim.checks.packages import check_installed

__all__ = ["call", "parsed"]

T = TypeVar("T")


def call(command: Callable[..., None], name: str, args: Sequence[str]) -> None:
    """Call a function with command-line arguments.

    Args:
        command: its parameters are the options, positional-only ones the arguments; its docstring is the help.
        name: of the command, for the help.
        args: what the user typed.

    Raises:
        ModuleNotFoundError: without tyro.
        SystemExit: with code 2 for wrong usage, 0 after `--help`.

    Example:
        >>> call(command, "prune", ["runs/a", "--threshold", "3"])
    """

    @functools.wraps(command)
    def arguments_of(*positional: Any, **named: Any) -> tuple[Any, Any]:
        return positional, named

    # tyro only parses: it would take an error of a function that it calls for wrong usage.
    positional, named = parsed(arguments_of, name, args)
    command(*positional, **named)


def parsed(kind: Callable[..., T], name: str, args: Sequence[str], default: T | None = None) -> T:
    """Build a dataclass from command-line arguments.

    Args:
        kind: its fields are the options.
        name: of the command, for the help.
        args: what the user typed.
        default: an instance whose values hold where nothing was typed.

    Example:
        >>> parsed(Train, "train", ["--data", "digits", "--out", "runs/a"]).data
        'digits'
    """
    check_installed("tyro", "the command line needs tyro", "cli")
    import tyro

    options: dict[str, Any] = {} if default is None else {"default": default}
    config = (tyro.conf.FlagCreatePairsOff,)
    return tyro.cli(kind, prog=f"bayeslim {name}", args=list(args), config=config, **options)
