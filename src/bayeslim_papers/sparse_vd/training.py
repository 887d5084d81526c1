"""The images of the Sparse VD experiment, and how it trains networks."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import constant_then_linear, warmup_linear
from bayeslim.storage import read_tensors, write_tensors
from bayeslim.training import fit_many
from bayeslim_papers.sparse_vd.recipes import NETWORKS, Recipe, bayesian_, fresh
from bayeslim_papers.sparse_vd.views import Data, varied

__all__ = ["load_images", "train_lenets", "train_vgg", "whitened"]


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

    The trained networks are kept in `files`, one each; if all are there, nothing is trained.

    Raises:
        ValueError: if a file holds a network of other settings.
    """
    models: list[nn.Module] = []
    facts: list[dict[str, Any]] = []
    for recipe, seed in zip(recipes, seeds, strict=True):
        with seeded(seed):
            models.append(bayesian_(fresh(NETWORKS[network](), recipe.init), recipe).to(data[0].device))
        own = {"network": network, "seed": seed, "images": len(data[0]), "batch_size": batch_size} | asdict(recipe)
        facts.append(json.loads(json.dumps(own)))
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

    The images are whitened and not augmented, as in the official code; an interrupted run goes on from `folder`.
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
    """Images after ZCA whitening: `(x - m) U (S + epsilon)^{-1/2} U^T`.

    `m` and `U S U^T` are mean and covariance of the training images; `epsilon` keeps noise from being blown up.
    """
    flat = train.flatten(1)
    centre = flat.mean(0)
    variances, directions = torch.linalg.eigh((flat - centre).T @ (flat - centre) / len(flat))
    matrix = directions * (variances.clamp_min(0) + epsilon).rsqrt() @ directions.T
    return ((flat - centre) @ matrix).view_as(train), ((test.flatten(1) - centre) @ matrix).view_as(test)


def load_images(
    network: str, root: Path | None, device: str, counts: tuple[int | None, int | None] = (None, None)
) -> tuple[Data, Data]:
    """The first images of MNIST minus its mean training image, or of whitened CIFAR-10 for the VGG-like network."""
    load = bl.data.cifar10 if network == "vgg" else bl.data.mnist
    parts = [(load(split, root=root), count) for split, count in zip(("train", "test"), counts, strict=True)]
    (x, y), (x_test, y_test) = ((data.x[:count].to(device), data.y[:count].to(device)) for data, count in parts)
    x, x_test = whitened(x, x_test) if network == "vgg" else (x - x.mean(0), x_test - x.mean(0))
    return (x, y), (x_test, y_test)
