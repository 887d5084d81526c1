"""The command line of an experiment: what all of them understand, and their own settings."""

from __future__ import annotations

import argparse
import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from bayeslim_papers.experiment import Experiment, Log, run
from bayeslim_papers.record import Record, commands_of, read_record, write_record

__all__ = ["carry_out", "command", "parser_of"]

MOST_SEEDS = 10_000
"""More would be a slip of the finger."""


def command(kind: type[Experiment], table: Callable[[Record], str]) -> Callable[[list[str] | None], None]:
    """The `main` of an experiment, whose docstring is its help; `table` shows a record."""

    def main(arguments: list[str] | None = None) -> None:
        carry_out(kind, parser_of(kind).parse_args(arguments), table)

    return main


def parser_of(kind: type[Experiment]) -> argparse.ArgumentParser:
    """What all experiments understand, and the settings in `kind.options`, with the types of their defaults."""
    parser = argparse.ArgumentParser(
        prog=f"bayeslim reproduce {kind.name}",
        description=inspect.getdoc(kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, help="JSON file to write, and to go on from")
    parser.add_argument("--root", type=Path, help=f"folder that holds {kind.root}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="join these result files instead of running")
    parser.add_argument("--quick", action="store_true", help="everything at a small size, to see that it runs")
    if kind.checkpoints:
        parser.add_argument("--checkpoints", type=Path, help="folder for the state of a training under way")
    settings = parser.add_argument_group("settings", "instead of the experiment's own")
    for name, given in kind.options.items():
        options, default = dict(given), getattr(kind, name, None)
        flags = options.pop("flags", (f"--{name.replace('_', '-')}",))
        if name == "seeds":
            options |= {"nargs": "+", "action": _Seeds, "metavar": "N"}
        elif "action" not in options:
            first = default[0] if isinstance(default, tuple) and default else default
            options.setdefault("type", str if first is None else type(first))
            options |= {"nargs": "+"} if isinstance(default, tuple) else {}
        settings.add_argument(*flags, dest=name, default=None, **options)
    return parser


def carry_out(kind: type[Experiment], chosen: argparse.Namespace, table: Callable[[Record], str]) -> None:
    """Run an experiment or join its records, as the arguments say; write the record as it grows, print its table."""
    console = Console()

    def show(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if chosen.merge:
        records = [json.loads(path.read_text()) for path in chosen.merge]
        record = kind.merged(records) | commands_of(records)
        write_record(chosen.out, record)
    else:
        save, log = functools.partial(write_record, chosen.out), Log(show, getattr(chosen, "checkpoints", None))
        experiment, data = kind.begin(chosen)
        earlier = read_record(chosen.out)
        record = run(experiment, data, chosen.device, earlier=earlier, save=save, log=log)
    show(table(record))


class _Seeds(argparse.Action):
    """One number is a count; ranges, and numbers where there are several, are meant as they are."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        told = "how many (5: those from 0 to 4), or which: several numbers, or ranges such as 3-5 or 7-7"
        super().__init__(*arguments, **options | {"help": told})

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        words: list[str] = list(values)
        try:
            ranges = [_range(word) for word in words]
        except ValueError:
            parser.error(f"--seeds {' '.join(words)}: pass how many, or several numbers, or ranges such as 3-5")
        if len(words) == 1 and "-" not in words[0]:
            ranges = [range(ranges[0].start)]
        count, found = sum(map(len, ranges)), set().union(*(part[:MOST_SEEDS] for part in ranges))
        if not len(found) == count <= MOST_SEEDS:
            problem = f"asks for more than {MOST_SEEDS}" if count > MOST_SEEDS else "asks for one twice"
            parser.error(f"--seeds {' '.join(words)} {problem}: pass how many, or different numbers")
        if not found:
            parser.error(f"--seeds {' '.join(words)} asks for none: pass 1 for seed 0 alone")
        namespace.seeds = [seed for part in ranges for seed in part]


def _range(word: str) -> range:
    """The seeds from `3-5`, or the one that a number is; a ValueError for anything else."""
    first, dash, last = word.partition("-")
    if not all(part.isascii() and part.isdecimal() for part in ((first, last) if dash else (first,))):
        raise ValueError(word)
    return range(int(first), int(last or first) + 1)
