"""`bayeslim reproduce`: the experiments by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import nullcontext

__all__ = ["EXPERIMENTS", "main", "main_of"]

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "comparison": ("comparison.command:main", "every method beside the usual baselines: UCI, MNIST, Fashion-MNIST"),
    "dissertation": (
        "dissertation.command:main",
        "what variational layers prune, by the ELBO and as the dissertation has it",
    ),
    "k-tied": ("k_tied.command:main", "k-tied Normal posteriors on MNIST, CIFAR and IMDB (arXiv 2002.02655)"),
    "report": (
        "pages.page:main",
        "no experiment: writes docs/results.md and docs/results/ from the records in results/, nothing is trained",
    ),
    "samplers": ("samplers.mnist:main", "CVAdam snapshots and pruning in one shot on MNIST (arXiv 2210.12957)"),
    "samplers-cifar": ("samplers.images:cifar", "the same with ResNet-18 on CIFAR-10, table 1 of the paper"),
    "samplers-imagenet": ("samplers.images:imagenet", "the same with ResNet-50 on ImageNet, table 3, a recipe"),
    "sparse-vd": (
        "sparse_vd.command:main",
        "Sparse VD, ARD and Gamma: LeNets on MNIST, VGG on CIFAR-10 (arXiv 1701.05369, 1811.00596)",
    ),
    "vdp": ("vdp.mnist:main", "mean and variance in one pass (VDP++) on MNIST"),
    "vdp-cifar": ("vdp.images:cifar", "the same with ResNet-18 on CIFAR-10"),
    "vdp-vit": ("vdp.images:vit", "the same with a small vision transformer on MNIST"),
    "vdp-imagenet": ("vdp.images:imagenet", "the same with ViT-S/16 on ImageNet, a recipe"),
    "variable-selection": ("samplers.variable_selection:main", "which inputs matter, on sparse functions"),
}
"""Experiment -> what takes its arguments, in a module of this package, and what it is."""

PLACES = ("--out", "--root", "--checkpoints")
"""Options that name a file or folder."""

USAGE = """usage: bayeslim reproduce list
       bayeslim reproduce NAME [OPTIONS]     (NAME --help lists the options)

experiments:
{names}"""


def main(args: list[str]) -> None:
    """List the experiments, or run one with its own options."""
    if not args or args[0] in ("list", "-h", "--help"):
        width = max(map(len, EXPERIMENTS))
        print(USAGE.format(names="\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in EXPERIMENTS.items())))
        if not args:
            raise SystemExit(2)
        return
    if args[0] not in EXPERIMENTS:
        from bayeslim.checks.names import check_name

        check_name("experiment", args[0], EXPERIMENTS)
    from bayeslim_papers.record import made_by

    with nullcontext() if "--merge" in args else made_by(_without_places(args)):
        main_of(args[0])(args[1:])


def main_of(name: str) -> Callable[[list[str]], None]:
    """What runs an experiment from its arguments."""
    module, _, function = EXPERIMENTS[name][0].partition(":")
    return getattr(importlib.import_module(f"bayeslim_papers.{module}"), function)


def _without_places(args: list[str]) -> str:
    """The command as anyone could type it: without folders and files of this machine."""
    shown, place = ["bayeslim reproduce"], False
    for word in args:
        if word.startswith("--"):
            place = word.split("=")[0] in PLACES
        if not place:
            shown.append(word)
    return " ".join(shown)
