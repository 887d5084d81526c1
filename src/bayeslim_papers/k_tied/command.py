"""The command line of the k-tied experiment."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from bayeslim_papers.arguments import add_seeds
from bayeslim_papers.command import carry_out, resumable_parser
from bayeslim_papers.k_tied.cifar import Cifar10, Cifar100
from bayeslim_papers.k_tied.imdb import Imdb
from bayeslim_papers.k_tied.mnist import Mnist
from bayeslim_papers.k_tied.part import Part
from bayeslim_papers.k_tied.resnet import Resnet
from bayeslim_papers.k_tied.table import table
from bayeslim_papers.training import PRECISIONS

__all__ = ["PARTS", "main"]

PARTS: dict[str, type[Part]] = {part.name: part for part in (Mnist, Cifar10, Cifar100, Imdb, Resnet)}
"""Name -> settings of the part."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ranks": {"type": int, "nargs": "+", "help": "0 is mean-field"},
    "epochs": {"type": int},
    "samples": {"type": int, "help": "weight samples of a score"},
    "lr": {"type": float},
    "prior_std": {"type": float},
    "precision": {"choices": PRECISIONS, "help": "of the products of cifar10, cifar100 and resnet"},
    "ramp": {"type": int, "help": "epochs over which the KL weight of resnet grows"},
}
"""What the command line can set, as options of the parser."""


def main(arguments: list[str] | None = None) -> None:
    """Run a part of the experiment from the command line."""
    from bayeslim_papers import k_tied  # here, since the package imports this module

    parser = resumable_parser(k_tied.__doc__, root="mnist/, cifar10/, cifar-100-binary/ or imdb/")
    parser.add_argument("--part", default="mnist", choices=PARTS)
    settings = parser.add_argument_group("settings", "instead of the part's own, where it has them")
    add_seeds(settings)
    for name, options in SETTINGS.items():
        settings.add_argument(f"--{name.replace('_', '-')}", **options)
    chosen = parser.parse_args(arguments)
    kind = PARTS[chosen.part]
    own = {field.name for field in fields(kind)}
    foreign = [name for name in SETTINGS if getattr(chosen, name) is not None and name not in own]
    if foreign:
        parser.error(f"--part {chosen.part} has no setting {', '.join(foreign)}")
    carry_out(kind, chosen, table)
