"""The command line of the experiments with images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayeslim_papers.arguments import add_seeds
from bayeslim_papers.command import carry_out, resumable_parser
from bayeslim_papers.images.experiment import ImageExperiment
from bayeslim_papers.training import PRECISIONS

__all__ = ["command"]


def command(
    kind: type[ImageExperiment],
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
    parser = resumable_parser(doc, root=root)
    parser.add_argument("--eager", dest="graph", action="store_false", default=None, help="without CUDA graphs")
    settings = parser.add_argument_group("settings", "instead of the experiment's own")
    settings.add_argument("--methods", nargs="+", choices=kind.known)
    add_seeds(settings)
    settings.add_argument("--precision", choices=PRECISIONS)
    for name in ("epochs", "batch_size", *kind.settings):
        settings.add_argument(f"--{name.replace('_', '-')}", type=type(getattr(kind, name)))
    carry_out(kind, parser.parse_args(arguments), table)
