"""LeNet-300-100 on MNIST, Fashion-MNIST and Two Moons: tables 4.2 to 4.4 and figures 4.7 to 4.10 of the dissertation.

A variant is `objective/method/pre-training`:

- elbo: the ELBO, means by He, ln variance -10, every method's own estimator, learning rate falling to 0 in the end;
- dissertation: its code. The KL is divided by N once more, weights are sampled, the learning rate is constant and the
  noise starts large: ln variance 0 around pre-trained means, else mean and ln variance of every weight from N(0, 1).
  Its `kingma` leaves alpha unbounded, where its polynomial KL falls to minus infinity;
- dissertation-3, dissertation-4: the same around pre-trained means with a ln variance of -3 and -4 instead of 0, which
  the text of the dissertation does not rule out;
- frequentist: means from a trained plain network, then the KL weight rises linearly to 1 in the last epoch;
- bayesian: warm-up with noise but without KL, then the same.

In the dissertation's form graves and molchanov layers train alike, because the KL hardly counts: what differs is the
threshold. Sparsity falls from that of the start. On Two Moons this gives the published 17-20-22 % of one row
(molchanov, bayesian: 16-19-17, before training 20-20-20) and the first layer of another (molchanov, frequentist:
26-63-41 against 27-35-31), but not those of graves at its threshold.
"""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

import bayeslim as bl
from bayeslim.posteriors import Multiplicative
from bayeslim.pruning import LOG_ALPHA, SIGNAL_TO_NOISE
from bayeslim.runtime.seeds import derived_seed, seeded
from bayeslim.training import History, fit_many
from bayeslim_papers.dissertation.pruning import accuracies, error_sweep, errors
from bayeslim_papers.dissertation.start import UnboundedKingma, scatter_

__all__ = ["Data", "Networks"]

STARTS = {"dissertation": 0.0, "dissertation-3": -3.0, "dissertation-4": -4.0}
"""Objective -> ln variance around pre-trained means; but for the first they are for graves and molchanov layers."""
PATH_POINTS = 20
"""Epochs of a run that its record shows."""


@dataclass(frozen=True)
class Data:
    """Training and test part on one device, and plain networks trained on them, by seed."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    plain: dict[int, nn.Module] = field(default_factory=dict)


@dataclass(frozen=True)
class Networks:
    """Settings for one data set; those of MNIST. The dissertation does not say how long it anneals."""

    data: str = "mnist"
    """mnist, fashion-mnist or moons."""
    sizes: tuple[int, ...] = (784, 300, 100, 10)
    objectives: tuple[str, ...] = ("elbo", "dissertation")
    methods: tuple[str, ...] = ("graves", "molchanov", "kingma")
    pretraining: tuple[str, ...] = ("frequentist", "bayesian")
    pretrain_epochs: int = 100
    warmup_epochs: int = 100
    anneal_epochs: int = 100
    batch_size: int = 256
    lr: float = 1e-3
    samples: int = 200
    """Networks per prediction."""
    repetitions: int = 10
    """Predictions whose spread the error bars of the sweep show; of the network of seed 0."""
    sweep: tuple[int, ...] = (50, 100, 150, 200)
    """Networks per prediction in the sweep."""
    rows: int | None = None
    """Use the first rows of the training and test part only."""

    def variants(self) -> list[str]:
        """The names of what is trained."""
        return [
            f"{objective}/{method}/{pretraining}"
            for objective in self.objectives
            for method in self.methods
            for pretraining in self.pretraining
            if not STARTS.get(objective) or (method != "kingma" and pretraining == "frequentist")
        ]

    def load(self, root: Path | None, device: str) -> Data:
        """Pixels in [0, 1] as vectors; for Two Moons 50 of 1000 points to train on, 950 to test on."""
        if self.data == "moons":
            x, y = bl.data.moons(1000, seed=0)
            parts = [(x[:50], y[:50]), (x[50:], y[50:])]
        else:
            read = {"mnist": bl.data.mnist, "fashion-mnist": bl.data.fashion_mnist}[self.data]
            parts = [(part.x.flatten(1), part.y) for part in (read(split, root=root) for split in ("train", "test"))]
        train, test = ((x[: self.rows].to(device), y[: self.rows].to(device)) for x, y in parts)
        return Data(train, test)

    def measured(self, variant: str, seeds: Sequence[int], data: Data) -> list[dict[str, Any]]:
        """Train one network per seed, side by side, and judge each."""
        objective, method, pretraining = variant.split("/")
        plain = self._plain(seeds, data) if pretraining == "frequentist" else [None] * len(seeds)
        models: list[nn.Module] = []
        for seed, source in zip(seeds, plain, strict=True):
            with seeded(seed):
                models.append(self.build(objective, method, source).to(data.train[0].device))
        initial = [list(bl.named_sparsity(model, criterion=_criterion(method)).values()) for model in models]
        histories = self._train(models, objective, pretraining, seeds, data)
        runs: list[dict[str, Any]] = []
        for seed, model, history, before, source in zip(seeds, models, histories, initial, plain, strict=True):
            run: dict[str, Any] = {"sparsity_initial": before, "diverged": _diverged(model, history)}
            if source is not None:
                run["plain_accuracy"] = {
                    name: 100 - errors(source, part, (1,), 0)[1]
                    for name, part in (("train", data.train), ("test", data.test))
                }
            if not run["diverged"]:
                run |= accuracies(model, data.test, _criterion(method), self.samples, seed)
                run |= {key: history.last[key] for key in ("energy", "nll", "kl")}
                if seed == 0:
                    run["sweep"] = error_sweep(model, data.test, self.sweep, self.repetitions)
                    run["path"] = _path(history)
            runs.append(run)
        return runs

    def build(self, objective: str, method: str, plain: nn.Module | None) -> nn.Sequential:
        """The network before training, around the plain one or from scratch."""
        init = "random" if plain is None else copy.deepcopy(plain).cpu()
        if objective == "elbo":
            return bl.mlp(self.sizes, method=method, init=init)
        if method == "kingma":
            noisy = functools.partial(Multiplicative, alpha=1.0)
            model = bl.mlp(self.sizes, init=init, posterior=noisy, prior=UnboundedKingma(), estimator=bl.weight_sample)
        else:
            start = STARTS[objective]
            model = bl.mlp(self.sizes, method=method, init=init, init_log_variance=start, estimator=bl.weight_sample)
        if plain is None:
            scatter_(model)
        return model

    def _train(
        self, models: list[nn.Module], objective: str, pretraining: str, seeds: Sequence[int], data: Data
    ) -> list[History]:
        """Train in place; the histories are empty if training broke off."""
        warmup = self.warmup_epochs if pretraining == "bayesian" else 0
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "network .* has diverged", RuntimeWarning)  # the record says so
            try:
                return fit_many(
                    models,
                    data.train,
                    likelihood=bl.Categorical(),
                    epochs=warmup + self.anneal_epochs,
                    batch_size=self.batch_size,
                    lr=self.lr,
                    lr_schedule=bl.schedules.constant_then_linear() if objective == "elbo" else None,
                    kl_schedule=bl.schedules.linear(warmup),
                    kl_scaling="elbo" if objective == "elbo" else "dissertation",
                    seeds=seeds,
                    progress=False,
                )
            except (FloatingPointError, ValueError) as error:
                if "diverged" not in str(error):
                    raise
                return [History() for _ in models]

    def _plain(self, seeds: Sequence[int], data: Data) -> list[nn.Module]:
        """Plain networks, trained once for all variants."""
        new = [seed for seed in seeds if seed not in data.plain]
        for seed in new:
            with seeded(derived_seed(seed, 1)):
                data.plain[seed] = bl.models.mlp(self.sizes).to(data.train[0].device)
        if new:
            fit_many(
                [data.plain[seed] for seed in new],
                data.train,
                likelihood=bl.Categorical(),
                epochs=self.pretrain_epochs,
                batch_size=self.batch_size,
                lr=self.lr,
                seeds=new,
                progress=False,
            )
        return [data.plain[seed] for seed in seeds]


def _criterion(method: str) -> bl.pruning.Criterion:
    return SIGNAL_TO_NOISE if method == "graves" else LOG_ALPHA


def _diverged(model: nn.Module, history: History) -> bool:
    """Whether training came to no end: a parameter or the last energy is not a number."""
    finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    return not (finite and history.records and math.isfinite(history.last["energy"]))


def _path(history: History) -> list[dict[str, Any]]:
    """Energy and sparsity (log alpha > 3) of some epochs, the first and the last among them."""
    records = history.records
    step = max(1, math.ceil((len(records) - 1) / (PATH_POINTS - 1)))
    chosen = [*records[:-1:step], records[-1]]
    return [
        {"epoch": one["epoch"], "energy": one["energy"], "sparsity": list(one["sparsity"].values())} for one in chosen
    ]
