"""The Sparse VD experiment: settings, and what is trained together and then finished."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from bayeslim_papers.command import command
from bayeslim_papers.experiment import SILENT, Experiment, Log, Member, Options
from bayeslim_papers.record import Record, check_joinable
from bayeslim_papers.sparse_vd.finish import finished
from bayeslim_papers.sparse_vd.recipes import FINISHES, GOALS, PAPER, RECIPES, TOLERANCE, USUAL, Recipe
from bayeslim_papers.sparse_vd.results import table
from bayeslim_papers.sparse_vd.training import load_images, train_lenets, train_vgg
from bayeslim_papers.sparse_vd.views import Data

__all__ = ["SparseVd", "main"]

HOW_IT_RAN = ("recipes", "seeds", "together", "compile")
"""Settings in which the runs of one file may differ."""


@dataclass(frozen=True)
class SparseVd(Experiment):
    """Sparse variational dropout (Molchanov et al. 2017) and its empirical-Bayes form (arXiv 1811.00596).

        bayeslim reproduce sparse-vd --network lenet-300-100 --recipes ard-4 ard-5 --device cuda --out ours.json

    Networks: LeNet-300-100 and LeNet-5-Caffe on MNIST (/255 minus the mean image), the VGG-like one on CIFAR-10 (ZCA
    whitened, no augmentation). A recipe says how a network is trained: prior, weight of the KL and its ramp, per layer
    if wanted, and the images: those whose names end in -varied see them shifted and turned from the start. Recipes and
    seeds that fit together are trained as one stack. Every trained network is then finished in several ways, each on a
    copy:

    - pruned: weights with ln alpha > 3 become zero, the others keep their means (Molchanov et al.);
    - magnitude: weights with |mean| < 0.01 become zero (arXiv 1811.00596);
    - tuned: pruned, then the means that are left are trained for ten more epochs without noise;
    - distilled: tuned on targets that are half the label, half the prediction of the unpruned posterior;
    - harder, hardest: tuned, with ln alpha > 1 and > -1;
    - longer, longer-distilled: fifty epochs at a larger learning rate, not ten;
    - relaxed: fifty epochs with noise and a KL of weight 1, whatever it was in training;
    - shifted, shifted-distilled: as longer, on images that are also shifted by a pixel in eight directions (the papers
      train on the images as they are); firm-shifted, harder-shifted and so on: with ln alpha > 2.4 and > 1;
    - varied: two hundred epochs on images that are shifted, or turned by up to nine degrees; firm-varied,
      harder-varied: with ln alpha > 2 and > 1;
    - 101, 281: the largest ln alpha become zero until so many times fewer weights are left; 101-varied, 281-varied: and
      fifty epochs on shifted and turned images.

    Compression is the papers': weights / weights that are not zero, biases not counted. Beside it stands what
    compaction makes of the network. Recipes are compared on the test images, as in the papers: sweep with some seeds,
    report others. Results are written after every stack, and a run with the same --out goes on where it stopped;
    networks kept by --checkpoints can be finished in other ways without training them again.
    """

    name: ClassVar[str] = "sparse-vd"
    root: ClassVar[str] = "mnist/ or cifar10/"
    by: ClassVar[tuple[str, ...]] = ("recipe",)
    checkpoints: ClassVar[bool] = True
    options: ClassVar[Options] = {
        "network": {"choices": tuple(RECIPES)},
        "recipes": {"help": "of the network, see RECIPES; default: all"},
        "seeds": {},
        "epochs": {"type": int, "help": "instead of the recipes' own; ramps shrink with them"},
        "finishes": {"choices": tuple(FINISHES), "help": f"default: {' '.join(USUAL)}; vgg: two"},
        "together": {"help": "networks in one stack, at most"},
        "compile": {"action": "store_true", "help": "train the stacks by torch.compile"},
        "images": {"type": int, "help": "train on the first so many only"},
    }

    network: str = "lenet-300-100"
    recipes: tuple[str, ...] = ("molchanov", "ard-4")
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int | None = None
    """Instead of the recipes' own."""
    finishes: tuple[str, ...] = USUAL
    batch_size: int = 100
    tune_epochs: int = 10
    samples: int = 20
    together: int = 14
    """Networks in one stack, at most."""
    compile: bool = False
    """Train the stacks by `torch.compile`."""
    width: float = 1.0
    """Of the VGG-like network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = RECIPES[self.network]
        unknown = [name for name in self.recipes if name not in known]
        if unknown:
            raise ValueError(f"`recipes` has no {unknown[0]!r}: choose from {', '.join(known)}")
        if self.network == "vgg" and any(FINISHES[name].tune for name in self.finishes):
            raise ValueError("`finishes` that tune are for the LeNets: pass ('pruned', 'magnitude') for vgg")

    def recipe(self, name: str) -> Recipe:
        """A recipe, in the epochs asked for."""
        return RECIPES[self.network][name].shortened(self.epochs)

    def load(
        self, root: Path | None, device: str, counts: tuple[int | None, int | None] = (None, None)
    ) -> tuple[Data, Data]:
        """The first so many training and test images, or all."""
        return load_images(self.network, root, device, counts)

    @classmethod
    def begin(cls, chosen: argparse.Namespace) -> tuple[SparseVd, tuple[Data, Data]]:
        """All recipes and the usual finishes of a network, unless asked for others; the quick form has few steps."""
        network = chosen.network or cls.network
        names = tuple(chosen.recipes or RECIPES[network])
        finishes = tuple(chosen.finishes or (("pruned", "magnitude") if network == "vgg" else USUAL))
        given = {key: getattr(chosen, key) for key in ("epochs", "together", "compile")}
        given = {key: value for key, value in given.items() if value is not None}
        seeds, counts = tuple(chosen.seeds or cls.seeds), (chosen.images, None)
        if chosen.quick:
            few: dict[str, Any] = {"batch_size": 20, "tune_epochs": 1, "samples": 3, "width": 1 / 16, "epochs": 2}
            names, seeds, counts, given = names[:2], seeds[:1], (500, 100), few | given
        config = cls(network=network, recipes=names, seeds=seeds, finishes=finishes, **given)
        return config, config.load(chosen.root, chosen.device, counts)

    def variants(self) -> list[tuple[str]]:
        """The recipes."""
        return [(name,) for name in self.recipes]

    def facts(self, data: tuple[Data, Data]) -> dict[str, Any]:
        """What results of one file must have in common are `settings`."""
        config = asdict(self)
        settings = {key: value for key, value in config.items() if key not in HOW_IT_RAN}
        return {
            "config": config,
            "settings": settings | {"images": [len(part[0]) for part in data]},
            "recipes": {name: asdict(self.recipe(name)) for name in self.recipes},
            "finishes": {name: asdict(FINISHES[name]) for name in self.finishes},
            "paper": PAPER[self.network],
            "goal": GOALS.get(self.network),
            "tolerance": {"error": TOLERANCE[self.network], "compression": TOLERANCE["compression"]},
        }

    def stacks(self, left: Sequence[Member]) -> Iterable[Sequence[Member]]:
        """Networks to be trained side by side."""
        size = 1 if self.network == "vgg" else self.together
        groups: dict[tuple[Any, ...], list[Member]] = {}
        for (name,), seed in sorted(left, key=lambda member: self.recipes.index(member[0][0])):
            groups.setdefault(self.recipe(name).stack(), []).append(((name,), seed))
        return [group[start : start + size] for group in groups.values() for start in range(0, len(group), size)]

    def measured_together(
        self, members: Sequence[Member], data: tuple[Data, Data], log: Log = SILENT
    ) -> list[dict[str, Any]]:
        """Train a stack and finish its networks; trained LeNets are kept in the folder and not trained again."""
        start, train = time.perf_counter(), data[0]
        names, seeds = [names[0] for names, _ in members], [seed for _, seed in members]
        recipes = [self.recipe(name) for name in names]
        if self.network == "vgg":
            own = log.folder and log.folder / f"{names[0]}-{seeds[0]}"
            models = [train_vgg(recipes[0], seeds[0], train, self.batch_size, self.width, own)]
        else:
            pairs, kept = zip(names, seeds, strict=True), log.folder
            files = kept and [kept / f"{name}-{seed}.safetensors" for name, seed in pairs]
            settings = self.batch_size, files
            models = train_lenets(self.network, recipes, seeds, train, *settings, compile=self.compile)
        timing = {"seconds": time.perf_counter() - start, "networks_at_once": len(members)}
        return [timing | found for found in finished(self, models, seeds, data)]

    def headline(self, found: Mapping[str, Any]) -> str:
        """Error and compression of every finish."""
        return ", ".join(
            f"{name} failed" if "failed" in own else f"{name} {own['error']:.2f} % at {own.get('compression', 1):.0f}x"
            for name, own in found.items()
            if isinstance(own, dict)
        )

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """See `Experiment`; settings of recipes that an early record does not know have their default in it."""
        settings: dict[str, Any] = {}
        recipes: dict[str, Any] = {}
        for record in records:
            complete = {name: asdict(Recipe(**own)) for name, own in record["recipes"].items()}
            for known, own in ((settings, record["settings"]), (recipes, complete)):
                check_joinable(known, own, choices=known.keys() ^ own.keys())  # what both know must agree
                known.update(own)
        runs = {cls.key(one): one for record in records for one in record["runs"]}
        seeds = sorted({seed for record in records for seed in record["config"]["seeds"]})
        config = records[-1]["config"] | {"recipes": list(recipes), "seeds": seeds}
        return records[-1] | {"config": config, "recipes": recipes, "runs": list(runs.values())}


main = command(SparseVd, table)
"""What `bayeslim reproduce` runs."""
