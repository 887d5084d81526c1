"""The settings of the Sparse VD experiment, its images, and how it trains networks."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import constant_then_linear, warmup_linear
from bayeslim.storage import read_tensors, write_tensors
from bayeslim.training import fit_many
from bayeslim_papers.sparse_vd.recipes import FINISHES, NETWORKS, RECIPES, USUAL, Recipe, bayesian_, fresh
from bayeslim_papers.sparse_vd.views import Data, varied

__all__ = ["Config", "Data", "load_images", "train_lenets", "train_vgg", "whitened"]

HOW_IT_RAN = ("recipes", "seeds", "together", "compile")
"""Settings in which the runs of one file may differ."""


@dataclass(frozen=True)
class Config:
    """Settings."""

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
        for name, value, known in (
            ("network", (self.network,), RECIPES),
            ("recipes", self.recipes, RECIPES.get(self.network, {})),
            ("finishes", self.finishes, FINISHES),
        ):
            unknown = [one for one in value if one not in known]
            if unknown:
                raise ValueError(f"`{name}` has no {unknown[0]!r}: choose from {', '.join(known)}")
        if self.network == "vgg" and any(FINISHES[name].tune for name in self.finishes):
            raise ValueError("`finishes` that tune are for the LeNets: pass ('pruned', 'magnitude') for vgg")

    def recipe(self, name: str) -> Recipe:
        """A recipe, in the epochs asked for."""
        return RECIPES[self.network][name].shortened(self.epochs)

    def comparable(self) -> dict[str, Any]:
        """All but which recipes and seeds were run and how: what results of one file must have in common."""
        return {key: value for key, value in asdict(self).items() if key not in HOW_IT_RAN}


def train_lenets(
    network: str,
    recipes: Sequence[Recipe],
    seeds: Sequence[int],
    data: Data,
    batch_size: int,
    files: Sequence[Path] | None = None,
    *,
    compile: bool = False,
) -> list[nn.Module]:
    """Train networks of one stack (see `Recipe.stack`) side by side.

    Args:
        network: name in `NETWORKS`.
        recipes: one per network.
        seeds: ditto.
        data: images and labels.
        batch_size: examples per batch.
        files: where to keep the trained networks, one file each; if all are there, nothing is trained.
        compile: see `fit_many`.

    Raises:
        ValueError: if a file holds a network of other settings.
    """
    models: list[nn.Module] = []
    for recipe, seed in zip(recipes, seeds, strict=True):
        with seeded(seed):
            models.append(bayesian_(fresh(NETWORKS[network](), recipe.init), recipe).to(data[0].device))
    facts: list[dict[str, Any]] = [
        {"network": network, "seed": seed, "images": len(data[0]), "batch_size": batch_size}
        | json.loads(json.dumps(asdict(recipe)))
        for recipe, seed in zip(recipes, seeds, strict=True)
    ]
    if files is not None and all(file.exists() for file in files):
        for model, file, own in zip(models, files, facts, strict=True):
            tensors, theirs = read_tensors(file)
            if theirs != own:
                changed = ", ".join(sorted(key for key in own if theirs.get(key) != own[key]))
                raise ValueError(f"{file} was trained with another {changed}: choose another folder, or delete it")
            model.load_state_dict(tensors)
        return models
    seen, copies = varied(data[0], shift=recipes[0].vary, turn=recipes[0].vary)
    fit_many(
        models,
        (seen, data[1].repeat(copies)),
        likelihood=bl.Categorical(),
        epochs=math.ceil(recipes[0].epochs / copies),
        batch_size=batch_size,
        lr=[recipe.lr for recipe in recipes],
        lr_schedule=constant_then_linear(recipes[0].hold),
        kl_weight=[copies * recipe.beta for recipe in recipes],
        kl_schedule=[warmup_linear(recipe.warmup // copies, recipe.ramp // copies) for recipe in recipes],
        seeds=seeds,
        compile=compile,
    )
    for file, model, own in zip(files or (), models, facts, strict=False):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(file, model.state_dict(), own)
    return models


def train_vgg(
    recipe: Recipe, seed: int, data: Data, batch_size: int, width: float = 1.0, folder: Path | None = None
) -> nn.Module:
    """Train one VGG-like network, from a dense one with dropout and weight decay 1e-5 where the recipe says so.

    Args:
        recipe: the recipe.
        seed: of everything.
        data: whitened images and their labels, without augmentation as in the official code.
        batch_size: examples per batch.
        width: of the network, see `bl.models.vgg_like`.
        folder: keeps checkpoints, from which an interrupted run goes on.
    """
    common: dict[str, Any] = {"likelihood": bl.Categorical(), "batch_size": batch_size, "seed": seed, "resume": True}
    with seeded(seed):
        dense = fresh(bl.models.vgg_like(width=width), recipe.init).to(data[0].device)
    if recipe.pretrain:
        bl.fit(
            dense,
            data,
            epochs=recipe.pretrain,
            optimizer=functools.partial(torch.optim.Adam, lr=1e-3, weight_decay=1e-5),
            lr_schedule=constant_then_linear(0.5),
            checkpoint=folder and folder / "dense",
            **common,
        )
    model = bl.models.vgg_like(width=width, dropout=False)
    model.load_state_dict(dense.state_dict())
    bayesian_(model.to(data[0].device), recipe)
    bl.fit(
        model,
        data,
        epochs=recipe.epochs,
        lr=recipe.lr,
        lr_schedule=constant_then_linear(recipe.hold),
        kl_schedule=warmup_linear(recipe.warmup, recipe.ramp, recipe.beta),
        checkpoint=folder,
        cuda_graph=data[0].is_cuda,
        **common,
    )
    return model


@torch.no_grad()
def whitened(train: Tensor, test: Tensor, epsilon: float = 1e-2) -> tuple[Tensor, Tensor]:
    r"""Images after ZCA whitening: `(x - m) U (S + epsilon)^{-1/2} U^T` for the covariance `U S U^T` of the pixels.

    Args:
        train: images (N, ...), which give mean `m` and covariance.
        test: more images, whitened the same way.
        epsilon: added to the variances, so that noise is not blown up.

    Example:
        >>> train, test = whitened(torch.rand(50, 3, 4, 4), torch.rand(10, 3, 4, 4))
    """
    flat = train.flatten(1)
    centre = flat.mean(0)
    variances, directions = torch.linalg.eigh((flat - centre).T @ (flat - centre) / len(flat))
    matrix = directions * (variances.clamp_min(0) + epsilon).rsqrt() @ directions.T
    return ((flat - centre) @ matrix).view_as(train), ((test.flatten(1) - centre) @ matrix).view_as(test)


def load_images(
    network: str, root: Path | None, device: str, counts: tuple[int | None, int | None] = (None, None)
) -> tuple[Data, Data]:
    """MNIST minus its mean training image, or whitened CIFAR-10 for the VGG-like network.

    Args:
        network: name in `NETWORKS`.
        root: folder that holds mnist/ or cifar10/.
        device: where the images go.
        counts: take the first so many training and test images; None takes all.
    """
    load = bl.data.cifar10 if network == "vgg" else bl.data.mnist
    parts = [(load(split, root=root), count) for split, count in zip(("train", "test"), counts, strict=True)]
    (x, y), (x_test, y_test) = ((data.x[:count].to(device), data.y[:count].to(device)) for data, count in parts)
    x, x_test = whitened(x, x_test) if network == "vgg" else (x - x.mean(0), x_test - x.mean(0))
    return (x, y), (x_test, y_test)
