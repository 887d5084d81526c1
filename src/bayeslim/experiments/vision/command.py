"""The command line of the experiments with images."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bayeslim.experiments.arguments import common_parser
from bayeslim.experiments.record import write_record
from bayeslim.experiments.vision.experiment import Experiment
from bayeslim.experiments.vision.running import merged, run
from bayeslim.experiments.vision.training import PRECISIONS

__all__ = ["command"]


def command(
    kind: type[Experiment],
    doc: str | None,
    root: str,
    table: Callable[[dict[str, Any]], str],
    arguments: list[str] | None,
) -> None:
    """Run an experiment from the command line, print its table, and write its record after every run.

    Args:
        kind: the experiment.
        doc: its help.
        root: what `--root` holds.
        table: shows a record.
        arguments: of the command; None takes those of the process.

    Example:
        >>> command(Samplers, __doc__, "cifar10/", table, ["--quick"])
    """
    parser = common_parser(
        doc,
        root=root,
        quick="a small network on made-up images, to see that it runs",
        out="JSON file to write, and to go on from",
    )
    parser.add_argument("--checkpoints", type=Path, default=None, help="folder for the state of a training under way")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    settings = parser.add_argument_group("settings", "instead of the experiment's own")
    settings.add_argument("--methods", nargs="+", choices=kind.known)
    settings.add_argument("--seeds", type=int, nargs="+")
    settings.add_argument("--precision", choices=PRECISIONS)
    numbers = ("epochs", "batch_size", *kind.settings)
    for name in numbers:
        settings.add_argument(f"--{name.replace('_', '-')}", type=type(getattr(kind, name)))
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = merged([json.loads(file.read_text()) for file in chosen.merge])
        write_record(chosen.out, record)
    else:
        given = {name: getattr(chosen, name) for name in ("methods", "seeds", "precision", *numbers)}
        given = {name: value for name, value in given.items() if value is not None}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        small = kind.quick(chosen.device) if chosen.quick else None
        experiment = replace(small[0] if small else kind(), **given, graph=not chosen.eager)  # pyright: ignore[reportCallIssue]
        data = small[1] if small else experiment.load(chosen.root, chosen.device)
        record = run(
            experiment,
            data,
            earlier=json.loads(chosen.out.read_text()) if chosen.out is not None and chosen.out.exists() else None,
            save=lambda found: write_record(chosen.out, found),
            checkpoints=chosen.checkpoints,
            say=lambda text: console.print(text, markup=False, soft_wrap=True),
        )
    console.print(table(record), markup=False, soft_wrap=True)
