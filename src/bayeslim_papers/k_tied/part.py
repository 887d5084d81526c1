"""What the parts of the experiment have in common: settings, data, and how a posterior is trained and scored."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayeslim.runtime.seeds import seeded
from bayeslim_papers.experiment import Experiment
from bayeslim_papers.k_tied.paper import PAPER
from bayeslim_papers.k_tied.scoring import METRICS, Data, Metrics, score, truncated
from bayeslim_papers.k_tied.training import train
from bayeslim_papers.record import Record
from bayeslim_papers.training import Say, silent

__all__ = ["Part", "Splits", "made_images", "posterior_name"]


@dataclass(frozen=True)
class Splits:
    """Training, validation and test parts on one device; nothing may be held out for validation."""

    train: Data
    validation: Data | None
    test: Data

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.train[0].device

    @staticmethod
    def holding_out(train: Data, test: Data, count: int) -> Splits:
        """The last `count` training examples are for validation."""
        x, y = train
        held = len(y) - count
        return Splits((x[:held], y[:held]), (x[held:], y[held:]), test)


@dataclass(frozen=True)
class Part(Experiment):
    """Settings of one part: one network on one data set, with several posteriors and seeds."""

    kind: ClassVar[str] = "part"
    by: ClassVar[str] = "posterior"
    choices: ClassVar[tuple[str, ...]] = ("ranks", "seeds")
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
    def build(self, k: int) -> nn.Module:
        """The network with a k-tied posterior; k = 0 is mean-field."""

    @abstractmethod
    def training(self, model: nn.Module) -> dict[str, Any]:
        """The options of `train` that are this part's own: likelihood, annealing and so on."""

    def parameters(self, model: nn.Module) -> int:
        """The number of parameters, as the paper counts them."""
        return sum(parameter.numel() for parameter in model.parameters())

    def variants(self) -> dict[str, int]:
        """The ranks by the names of their posteriors."""
        return {posterior_name(k): k for k in self.ranks}

    def measured(
        self, k: int, seed: int, data: Splits, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        """Scores of the network with the posterior of rank `k`, if mean-field also with its scales cut."""
        start = time.perf_counter()
        with seeded(seed):
            model = self.build(k).to(data.device)
        facts = self.fit_(model, k, seed, data, folder, say)
        how = data.test, len(data.train[0]), self.samples, self.metrics
        found = {"annealed": score(model, *how)} | facts | {"parameters": self.parameters(model)}
        if k == 0:
            found["truncated"] = truncated(model, self.cuts, *how)
        return found | {"seconds": time.perf_counter() - start}

    def fit_(self, model: nn.Module, k: int, seed: int, data: Splits, folder: Path | None, say: Say) -> dict[str, Any]:
        """Train the network; return what the record says of that, validation scores included."""
        facts = train(
            model,
            data.train,
            seed=seed,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            settings=self.comparable() | {"part": self.name, "k": k},
            folder=folder,
            say=say,
            **self.training(model),
        )
        if data.validation is None:
            return facts
        return facts | {"validation": score(model, data.validation, len(data.train[0]), self.samples, self.metrics)}

    def headline(self, found: Mapping[str, Any]) -> str:
        """The scores on the test data."""
        return ", ".join(f"{name} {value:.4g}" for name, value in found["annealed"].items())

    def facts(self, data: Splits) -> dict[str, Any]:
        """The paper's numbers besides."""
        return super().facts(data) | {"paper": PAPER[self.name]}

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """See `Experiment`; a record without a part is one of MNIST, written before there were others."""
        return super().merged([{"part": "mnist"} | record for record in records])


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
