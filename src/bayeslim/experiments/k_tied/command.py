"""The command line of the k-tied experiment."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bayeslim.experiments.arguments import common_parser
from bayeslim.experiments.k_tied.cifar import Cifar10, Cifar100
from bayeslim.experiments.k_tied.imdb import Imdb
from bayeslim.experiments.k_tied.mnist import Mnist
from bayeslim.experiments.k_tied.part import Part
from bayeslim.experiments.k_tied.resnet import Resnet
from bayeslim.experiments.k_tied.running import merged, run
from bayeslim.experiments.k_tied.table import table
from bayeslim.experiments.k_tied.training import PRECISIONS
from bayeslim.experiments.record import write_record

__all__ = ["PARTS", "main"]

PARTS: dict[str, type[Part]] = {part.name: part for part in (Mnist, Cifar10, Cifar100, Imdb, Resnet)}
"""Name -> settings of the part."""


def main(arguments: list[str] | None = None) -> None:
    """Run a part of the experiment from the command line."""
    from bayeslim.experiments import k_tied  # here, since the package imports this module

    parser = common_parser(
        k_tied.__doc__,
        root="mnist/, cifar10/, cifar-100-binary/ or imdb/",
        quick="a small network on made-up data, to see that it runs",
        out="JSON file to write, and to go on from",
    )
    parser.add_argument("--part", default="mnist", choices=PARTS)
    parser.add_argument("--checkpoints", type=Path, default=None, help="folder for the state of a training under way")
    settings = parser.add_argument_group("settings", "instead of the part's own, where it has them")
    settings.add_argument("--seeds", type=int, nargs="+")
    settings.add_argument("--ranks", type=int, nargs="+", help="0 is mean-field")
    settings.add_argument("--epochs", type=int)
    settings.add_argument("--samples", type=int, help="weight samples of a score")
    settings.add_argument("--lr", type=float)
    settings.add_argument("--prior-std", type=float)
    settings.add_argument("--precision", choices=PRECISIONS, help="of the products of cifar10, cifar100 and resnet")
    settings.add_argument("--ramp", type=int, help="epochs over which the KL weight of resnet grows")
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = merged([json.loads(file.read_text()) for file in chosen.merge])
        write_record(chosen.out, record)
    else:
        kind = PARTS[chosen.part]
        given: dict[str, Any] = {}
        for name in ("seeds", "ranks", "epochs", "samples", "lr", "prior_std", "precision", "ramp"):
            value = getattr(chosen, name)
            if value is not None:
                given[name] = tuple(value) if isinstance(value, list) else value
        foreign = given.keys() - {field.name for field in fields(kind)}
        if foreign:
            parser.error(f"--part {chosen.part} has no setting {', '.join(sorted(foreign))}")
        small = kind.quick(chosen.device) if chosen.quick else None
        part = replace(small[0] if small else kind(), **given)
        data = small[1] if small else part.load(chosen.root, chosen.device)
        record = run(
            part,
            data,
            earlier=json.loads(chosen.out.read_text()) if chosen.out is not None and chosen.out.exists() else None,
            save=lambda found: write_record(chosen.out, found),
            checkpoints=chosen.checkpoints,
            say=lambda text: console.print(text, markup=False, soft_wrap=True),
        )
    console.print(table(record), markup=False, soft_wrap=True)
