"""VDP++ beside a plain network and sampled weights: what the ResNet and the transformer have in common.

Three methods train the same network from the same means:

- det: the plain network;
- bbb: sampled weights, one draw per batch; predictions average over draws;
- vdp: mean and variance of every value, exact moments through every block; one pass predicts.

bbb and vdp share posterior, prior and weight of the KL, so that only the estimator differs. Each network is scored on
the test images, under noise of -6 to 40 dB, and with its smallest weights removed; training tells time and memory.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import SNRS, add_noise
from bayeslim.posteriors import fan_in_mean_field
from bayeslim.pruning.criteria import MAGNITUDE
from bayeslim.runtime.seeds import seeded
from bayeslim.schedules import Schedule, cosine_cycles, warmup_linear
from bayeslim_papers.images.experiment import ImageExperiment
from bayeslim_papers.images.images import Splits
from bayeslim_papers.images.scoring import Predicted, predicted, scores
from bayeslim_papers.images.training import train
from bayeslim_papers.training import Say, silent

__all__ = ["METHODS", "PAPER", "TOLERANCE", "Vdp"]

METHODS = ("det", "bbb", "vdp")
PAPER: dict[str, Any] = {
    "seconds of an epoch over det": {"vdp": 2.5},
    "statements": [
        "the accuracies do not differ significantly",
        "at -6 dB every Bayesian network is more accurate than det (p < 0.01)",
        "vdp keeps its accuracy past 90 % of the weights removed",
        "the variance of the predicted class falls as the signal-to-noise ratio grows",
    ],
}
"""What Epifano et al. say; they print no tables."""
TOLERANCE = {"seconds of an epoch over det": 0.5, "accuracy % below det": 1.0}
"""Time: by this part of the paper's ratio. Accuracy: what "not significantly" allows."""


@dataclass(frozen=True)
class Vdp(ImageExperiment):
    """Settings."""

    paper: ClassVar[dict[str, Any]] = PAPER
    tolerance: ClassVar[dict[str, float]] = TOLERANCE
    settings: ClassVar[tuple[str, ...]] = ("lr", "kl_weight", "ramp", "prior_std", "ratio", "samples")
    known: ClassVar[tuple[str, ...]] = METHODS

    methods: tuple[str, ...] = METHODS
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 10
    batch_size: int = 512
    lr: float = 1e-3
    kl_weight: float = 1.0
    """1 is the ELBO."""
    ramp: int = 0
    """Epochs over which the weight of the KL grows."""
    prior_std: float = 0.05
    """0 takes He's, `sqrt(2 / fan_in)`."""
    ratio: float = 0.1
    """Initial noise of a layer's output relative to its signal."""
    samples: int = 30
    """Draws of weights (bbb) or of outputs (vdp) of a prediction."""
    fractions: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95)
    """Parts of the weights that are removed."""

    @abstractmethod
    def network(self) -> nn.Module:
        """The plain network."""

    @property
    def lr_schedule(self) -> Schedule:
        """One cosine."""
        return cosine_cycles(1)

    def build(self, method: str) -> nn.Module:
        """The network of a method; all start from the same means for one random state."""
        plain = self.network()
        if method == "det":
            return plain
        return bl.bayesianize_(
            plain,
            posterior=lambda init: fan_in_mean_field(init, self.ratio),
            prior=bl.priors.Normal(0.0, self.prior_std) if self.prior_std else bl.priors.HeNormal(),
            estimator=bl.weight_sample if method == "bbb" else bl.moments,
        )

    def predicted(self, method: str, model: nn.Module, x: Tensor) -> Predicted:
        """By one pass of a plain network, and by draws otherwise."""
        samples = 1 if method == "det" else self.samples
        return predicted(model, x, samples=samples, precision=self.precision)

    def measured(
        self, method: str, seed: int, data: Splits, folder: Path | None = None, say: Say = silent
    ) -> dict[str, Any]:
        """Scores of the trained network, under noise and pruned."""
        x, y = data.test.plain()
        with seeded(seed):
            model = self.build(method).to(x.device)
        facts = train(
            model,
            data.train,
            optimizer=torch.optim.Adam(model.parameters(), self.lr, amsgrad=True, fused=True),
            epochs=self.epochs,
            batch_size=self.batch_size,
            seed=seed,
            lr_schedule=self.lr_schedule,
            kl_schedule=warmup_linear(0, self.ramp, self.kl_weight),
            precision=self.precision,
            graph=self.graph,
            settings=self.comparable() | {"method": method},
            folder=folder,
            say=say,
        )
        return {
            **scores(self.predicted(method, model, x).mean, y),
            "noise": [self.under_noise(method, model, x, y, snr) for snr in SNRS],
            "pruned": [self.without(method, model, x, y, fraction) for fraction in self.fractions],
        } | facts

    def under_noise(self, method: str, model: nn.Module, x: Tensor, y: Tensor, snr: float) -> dict[str, float]:
        """Accuracy and the variance of the predicted class for inputs of a signal-to-noise ratio."""
        found = self.predicted(method, model, add_noise(x, snr))
        return {"snr": snr, "accuracy": scores(found.mean, y)["accuracy"], "variance": found.of_predicted_class()}

    def without(self, method: str, model: nn.Module, x: Tensor, y: Tensor, fraction: float) -> dict[str, float]:
        """Accuracy after the weights of smallest mean are set to zero, ranked over all layers together."""
        pruned = copy.deepcopy(model)
        if method == "det":
            bl.bayesianize_(pruned, estimator=bl.mean_only)
        bl.prune_(pruned, MAGNITUDE, amount=fraction, allow_empty=True)
        return {"fraction": fraction, "accuracy": scores(self.predicted(method, pruned, x).mean, y)["accuracy"]}
