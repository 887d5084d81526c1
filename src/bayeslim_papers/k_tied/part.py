"""What the parts of the experiment have in common: settings, data, and how a posterior is trained and scored."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayeslim.runtime.seeds import seeded
from bayeslim_papers.experiment import SILENT, Experiment, Log, Options
from bayeslim_papers.k_tied.paper import PAPER
from bayeslim_papers.k_tied.scoring import METRICS, Data, Metrics, score, truncated
from bayeslim_papers.training import PRECISIONS, train

__all__ = ["Part", "Splits", "made_images"]


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
class Part(Experiment):
    """The k-tied Normal posterior (arXiv 2002.02655) on four networks.

        bayeslim reproduce k-tied --part mnist --device cuda --out results/k_tied_mnist.json

    Every part trains a network with mean-field and with 1-, 2- and 3-tied posteriors under the same budget, scores
    -ELBO, NLL and accuracy by 100 weight samples, and then cuts the scales of the mean-field network to rank 1, 2 and
    3:

    - mnist: a perceptron, figure 6 and table 2; also gradient noise and convergence without annealing;
    - cifar100, cifar10: a convolutional network, figure 6 and table 2 (the paper has CIFAR-100 alone);
    - imdb: an LSTM on reviews, figure 6 and table 2;
    - resnet: a residual network on CIFAR-10, mean-field alone, tables 3 and 5.

    Results are written after every posterior and seed, and a run with the same --out goes on where it stopped. --ranks
    and --seeds split a part over several processes, whose files --merge joins.
    """

    name: ClassVar[str] = "k-tied"
    root: ClassVar[str] = "mnist/, cifar10/, cifar-100-binary/ or imdb/"
    options: ClassVar[Options] = {
        "ranks": {"help": "0 is mean-field"},
        "seeds": {},
        "epochs": {},
        "samples": {"help": "weight samples of a score"},
        "lr": {},
        "prior_std": {},
        "precision": {"choices": PRECISIONS, "help": "of the products of cifar10, cifar100 and resnet"},
        "ramp": {"type": int, "help": "epochs over which the KL weight of resnet grows"},
    }
    identity: ClassVar[str] = "part"
    by: ClassVar[tuple[str, ...]] = ("posterior",)
    choices: ClassVar[tuple[str, ...]] = ("ranks", "seeds")
    checkpoints: ClassVar[bool] = True
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
        """The options of `train` that are this part's own: likelihood, weight of the KL and so on."""

    def parameters(self, model: nn.Module) -> int:
        """The number of parameters, as the paper counts them."""
        return sum(parameter.numel() for parameter in model.parameters())

    def variants(self) -> list[tuple[str]]:
        """The names of the posteriors."""
        return [(f"{k}-tied" if k else "mean-field",) for k in self.ranks]

    def measured(self, variant: str, seed: int, data: Splits, log: Log = SILENT) -> dict[str, Any]:
        """Scores of the network with a posterior, if mean-field also with its scales cut."""
        k = 0 if variant == "mean-field" else int(variant.removesuffix("-tied"))
        start = time.perf_counter()
        with seeded(seed):
            model = self.build(k).to(data.train[0].device)
        facts = self.fit_(model, k, seed, data, log)
        how = data.test, len(data.train[0]), self.samples, self.metrics
        found = {"annealed": score(model, *how)} | facts | {"parameters": self.parameters(model)}
        if k == 0:
            found["truncated"] = truncated(model, self.cuts, *how)
        return found | {"seconds": time.perf_counter() - start}

    def fit_(self, model: nn.Module, k: int, seed: int, data: Splits, log: Log) -> dict[str, Any]:
        """Train the network; return what the record says of that, validation scores included."""
        sizes: dict[str, Any] = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        facts = train(model, data.train, seed=seed, log=log, **sizes, **self.training(model))
        found = {key: facts[key] for key in ("steps", "precision", "kl_weight")}
        found |= {"step_milliseconds": 1e3 * facts["seconds"] / facts["steps"], "networks_at_once": 1}
        if data.validation is None:
            return found
        return found | {"validation": score(model, data.validation, len(data.train[0]), self.samples, self.metrics)}

    def facts(self, data: Splits) -> dict[str, Any]:
        """The paper's numbers besides."""
        return super().facts(data) | {"paper": PAPER[self.name]}

    def headline(self, found: Mapping[str, Any]) -> str:
        """The scores on the test data."""
        return super().headline(found["annealed"])


def made_images(shape: tuple[int, ...], classes: int, counts: tuple[int, int, int], device: str) -> Splits:
    """Noisy patterns, one per class, in three splits of `counts` examples."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(classes, *shape, generator=generator)

    def split(count: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(classes, (count,), generator=generator)
        x = patterns[y] + 0.3 * torch.randn(count, *shape, generator=generator)
        return x.to(device), y.to(device)

    return Splits(*map(split, counts))
