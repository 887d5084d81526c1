"""`bayeslim reproduce`: the experiments by name."""

from __future__ import annotations

import importlib
from contextlib import nullcontext

__all__ = ["EXPERIMENTS", "main"]

EXPERIMENTS: dict[str, tuple[str, str]] = {
    "comparison": (
        "bayeslim_papers.comparison",
        "every method beside the usual baselines: UCI, MNIST, Fashion-MNIST",
    ),
    "dissertation": (
        "bayeslim_papers.dissertation",
        "what variational layers prune, by the ELBO and as the dissertation has it",
    ),
    "k-tied": (
        "bayeslim_papers.k_tied",
        "k-tied Normal posteriors on MNIST, CIFAR and IMDB (arXiv 2002.02655)",
    ),
    "report": (
        "bayeslim_papers.pages",
        "no experiment: writes docs/results.md and docs/results/ from the records in results/, nothing is trained",
    ),
    "samplers": (
        "bayeslim_papers.samplers",
        "CVAdam snapshots and pruning in one shot on MNIST (arXiv 2210.12957)",
    ),
    "samplers-cifar": (
        "bayeslim_papers.samplers.cifar",
        "the same with ResNet-18 on CIFAR-10, table 1 of the paper",
    ),
    "samplers-imagenet": (
        "bayeslim_papers.samplers.imagenet",
        "the same with ResNet-50 on ImageNet, table 3, a recipe",
    ),
    "sparse-vd": (
        "bayeslim_papers.sparse_vd",
        "Sparse VD, ARD and Gamma: LeNets on MNIST, VGG on CIFAR-10 (arXiv 1701.05369, 1811.00596)",
    ),
    "vdp": ("bayeslim_papers.vdp", "mean and variance in one pass (VDP++) on MNIST"),
    "vdp-cifar": ("bayeslim_papers.vdp.cifar", "the same with ResNet-18 on CIFAR-10"),
    "vdp-vit": ("bayeslim_papers.vdp.vit", "the same with a small vision transformer on MNIST"),
    "vdp-imagenet": ("bayeslim_papers.vdp.imagenet", "the same with ViT-S/16 on ImageNet, a recipe"),
    "variable-selection": ("bayeslim_papers.samplers.variable_selection", "which inputs matter, on sparse functions"),
}
"""Experiment -> its module, whose `main` takes the arguments, and what it is."""

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
        importlib.import_module(EXPERIMENTS[args[0]][0]).main(args[1:])


def _without_places(args: list[str]) -> str:
    """The command as anyone could type it: without folders and files of this machine."""
    shown, place = ["bayeslim reproduce"], False
    for word in args:
        if word.startswith("--"):
            place = word.split("=")[0] in PLACES
        if not place:
            shown.append(word)
    return " ".join(shown)
