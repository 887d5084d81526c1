"""The command `bayeslim`: one file per command, none of them loaded before it is asked for."""

from __future__ import annotations

import importlib
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import version

from bayeslim.checks.names import did_you_mean
from bayeslim.checks.text import visible
from bayeslim.cli.parsing import call

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("bayeslim.cli.demo", "see it at work: a digit classifier that knows what it does not know"),
    "train": ("bayeslim.cli.train", "train a network on a known data set or on your own file"),
    "evaluate": ("bayeslim.cli.evaluate", "judge a trained network on held-out or new data"),
    "prune": ("bayeslim.cli.prune", "remove the weights that are noise and shrink the network"),
    "export": ("bayeslim.cli.export", "write the network for use elsewhere: ONNX, torch.export, safetensors"),
    "predict": ("bayeslim.cli.predict", "predict new rows, with how sure the network is of each"),
    "report": ("bayeslim.cli.report", "write a page about a run"),
    "data": ("bayeslim.cli.data", "list, fetch and find the known data sets"),
    "reproduce": ("bayeslim.cli.reproduce", "run an experiment of the papers"),
    "bench": ("bayeslim.cli.bench", "measure what a training step of each method costs here"),
}
"""Command -> its module and what it does. A module has a `command`, whose signature and docstring are the options and
their help, or a `main` that takes the arguments."""

OVERVIEW = """usage: bayeslim COMMAND [OPTIONS]

Bayesian neural networks that say how sure they are, and that shrink themselves.

commands (`bayeslim COMMAND --help` explains each):
{commands}

a run from end to end:
  bayeslim train --data digits --method ard --out runs/a
  bayeslim prune runs/a
  bayeslim export runs/a --format onnx
  bayeslim predict runs/a --input new.csv --out answers.csv

--debug shows where an error came from. Exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: None takes those of the process.

    Returns:
        The exit code: 0 done, 1 an error, 2 wrong usage, 130 interrupted.

    Example:
        >>> main(["data", "list"])
        0
    """
    args = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # a path that is not UTF-8 is no reason to stop
        sys.stdout.reconfigure(errors="backslashreplace")
    debug = "--debug" in args
    args = [argument for argument in args if argument != "--debug"]
    if not args or args[0] in ("-h", "--help", "help"):
        lines = [f"  {name:<10} {what}" for name, (_, what) in COMMANDS.items()]
        print(OVERVIEW.format(commands="\n".join(lines)))
        return 0 if args else 2
    if args[0] == "--version":
        print(f"bayeslim {version('bayeslim')}")
        return 0
    if args[0] not in COMMANDS:
        hint = did_you_mean(args[0], COMMANDS, most=2)
        print(f"bayeslim: unknown command {args[0]!r}: {hint}`bayeslim --help` lists them", file=sys.stderr)
        return 2
    try:
        with nullcontext() if debug else _short_warnings(args[0]):
            module = importlib.import_module(COMMANDS[args[0]][0])
            if hasattr(module, "command"):
                call(module.command, args[0], args[1:])
            else:
                module.main(args[1:])
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        print("bayeslim: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1  # whoever read the output has left
    except (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError) as error:
        if debug:
            raise
        print(f"bayeslim {args[0]}: {_message(error)}", file=sys.stderr)
        return 1
    except Exception as error:
        if debug:
            raise
        if _out_of_memory(error):
            first = _message(error).splitlines()[0]
            print(f"bayeslim {args[0]}: not enough memory: choose smaller sizes ({first})", file=sys.stderr)
            return 1
        print(
            f"bayeslim {args[0]}: unexpected {type(error).__name__}: {_message(error)}\n"
            "this should not happen; --debug shows where it came from",
            file=sys.stderr,
        )
        return 1
    return 0


@contextmanager
def _short_warnings(name: str) -> Iterator[None]:
    """Let warnings show as what they say, without the line of code that gave them."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_: f"bayeslim {name}: warning: {visible(str(message))}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def _out_of_memory(error: Exception) -> bool:
    """Whether torch could not get memory, which it says by a RuntimeError; on CUDA by one of its own."""
    return type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)


def _message(error: BaseException) -> str:
    text = visible(str(error).strip())
    return text or type(error).__name__
