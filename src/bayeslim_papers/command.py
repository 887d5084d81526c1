"""The command line of experiments whose record grows run by run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bayeslim_papers.arguments import common_parser
from bayeslim_papers.experiment import Experiment, run
from bayeslim_papers.record import Record, join_files, read_record, write_record

__all__ = ["carry_out", "resumable_parser"]


def resumable_parser(doc: str | None, *, root: str) -> argparse.ArgumentParser:
    """The common parser, and `--checkpoints`; an experiment adds its settings under the names of its fields.

    Args:
        doc: the experiment's docstring, which is its help.
        root: what `--root` holds.

    Example:
        >>> resumable_parser(__doc__, root="mnist/").parse_args(["--quick"]).checkpoints
    """
    quick, out = "a small network on made-up data, to see that it runs", "JSON file to write, and to go on from"
    parser = common_parser(doc, root=root, quick=quick, out=out)
    parser.add_argument("--checkpoints", type=Path, default=None, help="folder for the state of a training under way")
    return parser


def carry_out(kind: type[Experiment], chosen: argparse.Namespace, table: Callable[[Record], str]) -> None:
    """Run an experiment or join its records, as the arguments say; write the record after every run, print its table.

    Args:
        kind: the experiment.
        chosen: parsed arguments; those that are not None and named as a field are settings.
        table: shows a record.

    Example:
        >>> carry_out(Samplers, parser.parse_args(["--quick"]), table)
    """
    console = Console()

    def show(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if chosen.merge:
        record = join_files(chosen.merge, kind.merged, chosen.out)
    else:
        given: dict[str, Any] = {field.name: getattr(chosen, field.name, None) for field in fields(kind)}
        given = {name: value for name, value in given.items() if value is not None}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        small = kind.quick(chosen.device) if chosen.quick else None
        experiment = replace(small[0] if small else kind(), **given)  # pyright: ignore[reportCallIssue]
        record = run(
            experiment,
            small[1] if small else experiment.load(chosen.root, chosen.device),
            earlier=read_record(chosen.out),
            save=lambda found: write_record(chosen.out, found),
            checkpoints=chosen.checkpoints,
            say=show,
        )
    show(table(record))
