"""The command line of the k-tied experiment."""

from __future__ import annotations

from dataclasses import fields

from bayeslim_papers.command import carry_out, parser_of
from bayeslim_papers.k_tied.cifar import Cifar10, Cifar100
from bayeslim_papers.k_tied.imdb import Imdb
from bayeslim_papers.k_tied.mnist import Mnist
from bayeslim_papers.k_tied.part import Part
from bayeslim_papers.k_tied.resnet import Resnet
from bayeslim_papers.k_tied.results import table

__all__ = ["PARTS", "main"]

PARTS: dict[str, type[Part]] = {part.name: part for part in (Mnist, Cifar10, Cifar100, Imdb, Resnet)}
"""Name -> settings of the part."""


def main(arguments: list[str] | None = None) -> None:
    """Run a part of the experiment from the command line."""
    parser = parser_of(Part)
    parser.add_argument("--part", default="mnist", choices=PARTS)
    chosen = parser.parse_args(arguments)
    kind = PARTS[chosen.part]
    own = {field.name for field in fields(kind)}
    foreign = [name for name in Part.options if getattr(chosen, name) is not None and name not in own]
    if foreign:
        parser.error(f"--part {chosen.part} has no setting {', '.join(foreign)}")
    carry_out(kind, chosen, table)
