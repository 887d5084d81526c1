"""The options that all experiments understand."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["add_seeds", "common_parser"]


def common_parser(
    doc: str | None, *, root: str, quick: str, out: str = "JSON file to write"
) -> argparse.ArgumentParser:
    """A parser with `--out`, `--root`, `--device`, `--merge` and `--quick`; an experiment adds its own.

    Args:
        doc: the experiment's docstring, which is its help; the first `bayeslim reproduce NAME` in it names the program.
        root: what `--root` holds.
        quick: what `--quick` does.
        out: what `--out` is for.

    Example:
        >>> common_parser(__doc__, root="mnist/", quick="one seed").parse_args(["--quick"]).device
        'cpu'
    """
    named = re.search(r"bayeslim reproduce \S+", doc or "")
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=named and named[0], description=doc, formatter_class=shape)
    parser.add_argument("--out", type=Path, default=None, help=out)
    parser.add_argument("--root", type=Path, default=None, help=f"folder that holds {root}")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="join these result files instead of running")
    parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def add_seeds(parser: Any, *names: str, default: Sequence[int] | None = None, what: str = "seeds") -> None:
    """Give a parser `--seeds`: how many, as in `--seeds 5`, or which, as in `--seeds 10 0 1` and `--seeds 3-5`.

    Args:
        parser: of arguments, or a group of one.
        names: other names of the option.
        default: what an experiment runs by itself; None leaves that to it.
        what: the thing that is counted, for the help.

    Example:
        >>> add_seeds(parser := argparse.ArgumentParser())
        >>> parser.parse_args(["--seeds", "3"]).seeds, parser.parse_args(["--seeds", "10", "0-2"]).seeds
        ([0, 1, 2], [10, 0, 1, 2])
    """
    told = f"how many {what} (5: those from 0 to 4), or which: several numbers, or ranges such as 3-5 or 7-7"
    shown = None if default is None else list(default)
    parser.add_argument(
        "--seeds", *names, dest="seeds", nargs="+", action=_Seeds, default=shown, metavar="N", help=told
    )


MOST_SEEDS = 10_000
"""More would be a slip of the finger."""


class _Seeds(argparse.Action):
    """One number is a count; ranges, and numbers where there are several, are meant as they are."""

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
