"""What the parts of the experiment have in common: settings, data, and how a posterior is trained and scored."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bayeslim.experiments.k_tied.scoring import METRICS, Data, Metrics, score, truncated
from bayeslim.experiments.k_tied.training import Say, silent, train
from bayeslim.randomness import seeded

__all__ = ["CHOICES", "Part", "Splits", "made_images", "posterior_name"]

CHOICES = ("ranks", "seeds")
"""Settings that say which runs were made, not how: results of one file may differ in them."""


@dataclass(frozen=True)
class Splits:
    """Training, validation and test parts on one device; nothing may be held out for validation."""

    train: Data
    validation: Data | None
    test: Data

    @staticmethod
    def holding_out(train: Data, test: Data, count: int) -> Splits:
        """The last `count` training examples are for validation."""
        x, y = train
        held = len(y) - count
        return Splits((x[:held], y[:held]), (x[held:], y[held:]), test)


@dataclass(frozen=True)
class Part(ABC):
    """Settings of one part: one network on one data set, with several posteriors and seeds."""

    name: ClassVar[str]
    side_by_side: ClassVar[bool] = False
    """Whether the seeds are trained as one stack."""
    metrics: ClassVar[Metrics] = METRICS

    ranks: tuple[int, ...] = (0, 1, 2, 3)
    """Ranks of the posteriors; 0 is mean-field."""
    cuts: tuple[int, ...] = (1, 2, 3)
    """Ranks to which the scales of the mean-field network are cut."""
    batch_size: int = 1024
    epochs: int = 300
    lr: float = 1e-3
    prior_std: float = 0.2
    samples: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)

    @abstractmethod
    def load(self, root: Path | None, device: str) -> Splits:
        """The data."""

    @classmethod
    @abstractmethod
    def quick(cls, device: str) -> tuple[Self, Splits]:
        """Settings and made-up data with which the whole part takes seconds."""

    @abstractmethod
    def build(self, k: int) -> nn.Module:
        """The network with a k-tied posterior; k = 0 is mean-field."""

    @abstractmethod
    def training(self, models: Sequence[nn.Module]) -> dict[str, Any]:
        """The options of `train` that are this part's own: likelihood, annealing and so on."""

    def comparable(self) -> dict[str, Any]:
        """All settings but `CHOICES`: what results of one file must have in common."""
        return {key: value for key, value in asdict(self).items() if key not in CHOICES}

    def parameters(self, model: nn.Module) -> int:
        """The number of parameters, as the paper counts them."""
        return sum(parameter.numel() for parameter in model.parameters())

    def measured(
        self, k: int, seeds: Sequence[int], data: Splits, folder: Path | None = None, say: Say = silent
    ) -> list[dict[str, Any]]:
        """Train a network per seed with one posterior, side by side, and score each.

        Args:
            k: rank of the posterior.
            seeds: of the networks.
            data: all splits.
            folder: for checkpoints, from which an interrupted training goes on.
            say: told how far training is.

        Returns:
            A run for the record, per seed.
        """
        start = time.perf_counter()
        models: list[nn.Module] = []
        for seed in seeds:
            with seeded(seed):
                models.append(self.build(k).to(data.train[0].device))
        found = self.fit_(models, k, seeds, data, folder, say)
        num_data = len(data.train[0])
        runs: list[dict[str, Any]] = []
        for seed, model, facts in zip(seeds, models, found, strict=True):
            annealed = score(model, data.test, num_data, self.samples, self.metrics)
            run = {"seed": seed, "posterior": posterior_name(k), "annealed": annealed} | facts
            run["parameters"] = self.parameters(model)
            if k == 0:
                run["truncated"] = truncated(model, self.cuts, data.test, num_data, self.samples, self.metrics)
            runs.append(run)
        return [run | {"seconds": (time.perf_counter() - start) / len(runs)} for run in runs]

    def fit_(
        self, models: Sequence[nn.Module], k: int, seeds: Sequence[int], data: Splits, folder: Path | None, say: Say
    ) -> list[dict[str, Any]]:
        """Train the networks; return what the record says of the training of each, validation scores included."""
        facts = train(
            models,
            data.train,
            seeds=seeds,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            settings=json.loads(json.dumps(self.comparable() | {"part": self.name, "k": k})),
            folder=folder,
            say=say,
            **self.training(models),
        )
        if data.validation is None:
            return [facts] * len(models)
        options = len(data.train[0]), self.samples, self.metrics
        return [facts | {"validation": score(model, data.validation, *options)} for model in models]


def posterior_name(k: int) -> str:
    """What the paper calls the posterior of rank k.

    Example:
        >>> posterior_name(2)
        '2-tied'
    """
    return f"{k}-tied" if k else "mean-field"


def made_images(shape: tuple[int, ...], classes: int, counts: tuple[int, int, int], device: str) -> Splits:
    """Noisy patterns, one per class, in three splits of `counts` examples.

    Example:
        >>> made_images((3, 32, 32), 10, (80, 20, 20), "cpu").train[0].shape
        torch.Size([80, 3, 32, 32])
    """
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(classes, *shape, generator=generator)

    def split(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(classes, (count,), generator=generator)
        x = patterns[y] + 0.3 * torch.randn(count, *shape, generator=generator)
        return x.to(device), y.to(device)

    return Splits(*map(split, counts))
