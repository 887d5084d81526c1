"""Sparse variational dropout (Molchanov et al. 2017) and its empirical-Bayes form (arXiv 1811.00596).

    bayeslim reproduce sparse-vd --network lenet-300-100 --recipes ard-4 ard-5 --device cuda --out ours.json

Networks: LeNet-300-100 and LeNet-5-Caffe on MNIST (/255 minus the mean image), the VGG-like one on CIFAR-10 (ZCA
whitened, no augmentation). A recipe says how a network is trained: prior, weight of the KL and its ramp, per layer if
wanted, and the images: those whose names end in -varied see them shifted and turned from the start. Recipes and seeds
that fit together are trained as one stack. Every trained network is then finished in several ways, each on a copy:

- pruned: weights with ln alpha > 3 become zero, the others keep their means (Molchanov et al.);
- magnitude: weights with |mean| < 0.01 become zero (arXiv 1811.00596);
- tuned: as pruned, then the means that are left are trained for ten more epochs without noise;
- distilled: ditto, on targets that are half the label, half the prediction of the unpruned posterior;
- harder, hardest: as tuned, with ln alpha > 1 and > -1;
- longer, longer-distilled: fifty epochs at a larger learning rate, not ten;
- relaxed: fifty epochs with noise and a KL of weight 1, whatever it was in training;
- shifted, shifted-distilled: as longer, on images that are also shifted by a pixel in eight directions (the papers
  train on the images as they are); firm-shifted, harder-shifted and so on: the same, with ln alpha > 2.4 and > 1;
- varied: two hundred epochs on images that are shifted, or turned by up to nine degrees; firm-varied, harder-varied:
  the same, with ln alpha > 2 and > 1;
- 101, 281: the largest ln alpha become zero until so many times fewer weights are left; 101-varied, 281-varied: and
  fifty epochs on shifted and turned images.

Compression is the papers': weights / weights that are not zero, biases not counted. Beside it stands what compaction
makes of the network. Recipes are compared on the test images, as in the papers: sweep with some seeds, report others.
Results are written after every stack, and a run with the same --out goes on where it stopped; networks kept by
--checkpoints can be finished in other ways without training them again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bayeslim_papers.arguments import add_seeds, common_parser
from bayeslim_papers.record import begun, check_joinable, join_files, read_record, write_record
from bayeslim_papers.sparse_vd.finish import finished
from bayeslim_papers.sparse_vd.recipes import FINISHES, GOALS, PAPER, RECIPES, TOLERANCE, USUAL, Recipe
from bayeslim_papers.sparse_vd.table import table
from bayeslim_papers.sparse_vd.training import Config, Data, load_images, train_lenets, train_vgg

__all__ = ["Config", "main", "merged", "run", "stacks"]

Member = tuple[str, int]
"""A recipe's name and a seed."""


def run(
    config: Config,
    images: tuple[Data, Data],
    *,
    earlier: dict[str, Any] | None = None,
    save: Callable[[dict[str, Any]], None] = lambda record: None,
    checkpoints: Path | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """All recipes and seeds on (train, test).

    Args:
        config: settings.
        images: training and test images with labels, on the device to use.
        earlier: a record of this configuration whose results are kept and not computed again.
        save: called with the record after every stack.
        checkpoints: folder for the checkpoints of VGG runs, and for trained LeNets, which are not trained again.
        console: where to say what was found.

    Returns:
        A record for JSON.

    Raises:
        ValueError: if `earlier` was made with other settings.
    """
    train, test = images
    facts: dict[str, Any] = {
        "config": asdict(config),
        "settings": config.comparable() | {"images": [len(train[0]), len(test[0])]},
        "recipes": {name: asdict(config.recipe(name)) for name in config.recipes},
        "finishes": {name: asdict(FINISHES[name]) for name in config.finishes},
        "paper": PAPER[config.network],
        "goal": GOALS.get(config.network),
        "tolerance": {"error": TOLERANCE[config.network], "compression": TOLERANCE["compression"]},
    }
    record = begun(facts, train[0].device, earlier, merged)
    done = {(one["recipe"], one["seed"]) for one in record["runs"]}
    for members in stacks(config, done):
        start = time.perf_counter()
        names, seeds = zip(*members, strict=True)
        recipes = [config.recipe(name) for name in names]
        if config.network == "vgg":
            folder = checkpoints and checkpoints / f"{names[0]}-{seeds[0]}"
            models = [train_vgg(recipes[0], seeds[0], train, config.batch_size, config.width, folder)]
        else:
            files = checkpoints and [checkpoints / f"{name}-{seed}.safetensors" for name, seed in members]
            settings = config.batch_size, files
            models = train_lenets(config.network, recipes, seeds, train, *settings, compile=config.compile)
        seconds = time.perf_counter() - start
        for (name, seed), found in zip(members, finished(config, models, seeds, images), strict=True):
            timing = {"seconds": seconds, "networks_at_once": len(members)}
            record["runs"].append({"recipe": name, "seed": seed} | timing | found)
            if console is not None:
                console.print(f"{name} seed {seed}: {_short(found)}", markup=False, soft_wrap=True)
        save(record)
    return record


def stacks(config: Config, done: set[Member]) -> list[list[Member]]:
    """What is left to do, in lists of networks to be trained side by side."""
    left = [member for member in itertools.product(config.recipes, config.seeds) if member not in done]
    size = 1 if config.network == "vgg" else config.together
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for name, seed in left:
        groups.setdefault(config.recipe(name).stack(), []).append((name, seed))
    return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]


def _short(found: dict[str, Any]) -> str:
    parts = [
        f"{name} failed" if "failed" in own else f"{name} {own['error']:.2f} % at {own.get('compression', 1):.0f}x"
        for name, own in found.items()
    ]
    return ", ".join(parts)


def merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One record out of several with the same settings; a recipe and seed that is in two counts once.

    Settings of recipes that an early record does not know have their default in it.

    Raises:
        ValueError: if their settings differ.
    """
    settings: dict[str, Any] = {}
    recipes: dict[str, Any] = {}
    for record in records:
        complete = {name: asdict(Recipe(**own)) for name, own in record["recipes"].items()}
        for known, own in ((settings, record["settings"]), (recipes, complete)):
            check_joinable(known, own, choices=known.keys() ^ own.keys())  # what both know must agree
            known.update(own)
    runs = {(one["recipe"], one["seed"]): one for record in records for one in record["runs"]}
    seeds = sorted({seed for record in records for seed in record["config"]["seeds"]})
    config = records[-1]["config"] | {"recipes": list(recipes), "seeds": seeds}
    return records[-1] | {"config": config, "recipes": recipes, "runs": list(runs.values())}


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    parser = common_parser(
        __doc__,
        root="mnist/ or cifar10/",
        quick="two recipes, one seed, a few steps",
        out="JSON file to write, and to go on from",
    )
    parser.add_argument("--network", default=Config.network, choices=RECIPES)
    parser.add_argument("--recipes", nargs="+", default=None, help="of the network, see RECIPES; default: all")
    add_seeds(parser, default=Config.seeds)
    parser.add_argument("--epochs", type=int, default=None, help="instead of the recipes' own; ramps shrink with them")
    parser.add_argument(
        "--finishes", nargs="+", default=None, choices=FINISHES, help=f"default: {' '.join(USUAL)}; vgg: two"
    )
    parser.add_argument("--together", type=int, default=Config.together, help="networks in one stack, at most")
    parser.add_argument("--compile", action="store_true", help="train the stacks by torch.compile")
    parser.add_argument("--images", type=int, default=None, help="train on the first so many only")
    parser.add_argument(
        "--checkpoints", type=Path, default=None, help="folder for the state of vgg runs and for trained LeNets"
    )
    chosen = parser.parse_args(arguments)
    console = Console()
    if chosen.merge:
        record = join_files(chosen.merge, merged, chosen.out)
    else:
        names = tuple(chosen.recipes or RECIPES[chosen.network])
        finishes = tuple(chosen.finishes or (("pruned", "magnitude") if chosen.network == "vgg" else USUAL))
        how = {"together": chosen.together, "compile": chosen.compile}
        config = Config(chosen.network, names, tuple(chosen.seeds), chosen.epochs, finishes, **how)
        counts = chosen.images, None
        if chosen.quick:
            few = {"batch_size": 20, "tune_epochs": 1, "samples": 3, "width": 1 / 16}
            config, counts = replace(config, recipes=names[:2], seeds=(0,), epochs=2, **few), (500, 100)
        images = load_images(chosen.network, chosen.root, chosen.device, counts)
        earlier = read_record(chosen.out)
        record = run(
            config,
            images,
            earlier=earlier,
            save=lambda found: write_record(chosen.out, found),
            checkpoints=chosen.checkpoints,
            console=console,
        )
    console.print(table(record), markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
