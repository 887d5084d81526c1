"""VDP++ on MNIST: networks, training and scores."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import SNRS, infidelity, magnitude_curve, noise_sweep, sensitivity_max
from bayeslim.full_covariance import full_covariance
from bayeslim.gaussian import Gaussian
from bayeslim.machine import machine
from bayeslim.posteriors import fan_in_mean_field
from bayeslim.runtime.seeds import seeded
from bayeslim.runtime.timing import interleaved
from bayeslim.step_costs import costs_of, train_step
from bayeslim_papers.command import carry_out, parser_of
from bayeslim_papers.experiment import SILENT, Experiment, Log, Options
from bayeslim_papers.record import Record, write_record
from bayeslim_papers.vdp.results import methods

__all__ = ["CovarianceNetwork", "Images", "VdpMnist", "build", "costs", "main"]

PRIORS: dict[str, Callable[[float], bl.priors.Prior]] = {
    "bbb": lambda std: bl.priors.ScaleMixture(),
    "vdp-cov": lambda std: bl.priors.Normal(0.0, 1.0),
    "vdp": lambda std: bl.priors.Normal(0.0, std),
    "vdp-ard": lambda std: bl.priors.ARD(),
}
"""Of the Bayesian methods, by `prior_std`."""


class Images(NamedTuple):
    """Training and test images, and others that the network has not seen the like of."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    outliers: Tensor


@dataclass(frozen=True)
class VdpMnist(Experiment):
    """VDP++ on MNIST: mean and variance in one pass beside a plain network, sampled weights and full covariances.

        bayeslim reproduce vdp --device cuda --out results/vdp_mnist.json

    LeNet-5 (61 470 weights), Adam with amsgrad, batch 512, inputs in [0, 1]; five methods and five seeds (figures 1 to
    4 of Epifano et al. 2024, IEEE Access):

    - det: the plain network;
    - bbb: Bayes by Backprop, sampled weights and a scale-mixture prior, predictions from 200 samples;
    - vdp-cov: covariances within feature maps, first order, the original VDP; on part of the images, because it is
      slow; prior N(0, 1) whose KL weighs 60 times that of the ELBO of these 12 800 images (the authors add it to 1000
      times the mean cross-entropy: 60 times that of the ELBO of all 60 000, 12.8 times that of so many);
    - vdp: variances alone, exact moments, predictions from one pass. The objective is the ELBO and the prior
      N(0, 0.05^2): with N(0, 1), at 1, 10 or 60 times the KL (these two with SELU), the network is neither more robust
      to noise than the plain one nor prunable (docs/results/vdp.md);
    - vdp-ard: the same with an ARD prior, which prunes best.

    Each network is scored on the test images, under noise of -6 to 40 dB, with its smallest weights removed, and by the
    Infidelity and Sensitivity-Max of its input gradients. `--costs` measures time and memory of a training step
    instead. Results are written after every run, and a run with the same --out goes on where it stopped.
    """

    name: ClassVar[str] = "vdp"
    root: ClassVar[str] = "mnist/ and fashion-mnist/"
    options: ClassVar[Options] = {
        "methods": {"choices": ("det", *PRIORS)},
        "seeds": {},
        "epochs": {},
    }
    paper: ClassVar[Mapping[str, Any]] = {
        "time of an epoch over det": {"vdp-cov": 10.0, "vdp": 2.5},
        "peak memory of vdp-cov over vdp": 10.0,
        "statements": [
            "one-way ANOVA of the test accuracies is not significant",
            "at -6 dB every Bayesian network is more accurate than det (p < 0.01)",
            "vdp keeps its accuracy past 90 % of the weights removed",
            "the variance of the predicted class falls with the signal-to-noise ratio; vdp-cov and vdp are "
            "rank-correlated",
            "Sensitivity-Max: det slightly better; Infidelity: vdp clearly best",
        ],
    }
    """It prints no tables."""

    methods: tuple[str, ...] = ("det", *PRIORS)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    epochs: int = 25
    cov_epochs: int = 2
    cov_images: int = 12_800
    cov_test_images: int = 1000
    batch_size: int = 512
    cov_batch_size: int = 64
    lr: float = 1e-3
    prior_std: float = 0.05
    cov_kl_weight: float = 60.0
    samples: int = 200
    fractions: tuple[float, ...] = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98)
    explained: int = 200
    """Test images whose gradients are judged."""

    def load(self, root: Path | None, device: str) -> Images:
        """MNIST in [0, 1], and the test images of Fashion-MNIST as outliers."""
        train, test = (bl.data.mnist(split, root=root) for split in ("train", "test"))
        strange = bl.data.fashion_mnist("test", root=root)
        first, second = ((part.x.to(device), part.y.to(device)) for part in (train, test))
        return Images(first, second, strange.x.to(device))

    @classmethod
    def quick(cls, root: Path | None, device: str) -> tuple[Self, Images]:
        """One seed, one epoch of a thousand images."""
        small = cls(seeds=(0,), epochs=1, samples=10, explained=4, cov_batch_size=4, cov_images=8, cov_test_images=8)
        (x, y), (x_test, y_test), strange = small.load(root, device)
        return small, Images((x[:1000], y[:1000]), (x_test[:100], y_test[:100]), strange[:100])

    def measured(self, variant: str, seed: int, data: Images, log: Log = SILENT) -> dict[str, Any]:
        """Train a network and judge it."""
        started = time.perf_counter()
        with seeded(seed):
            model = build(self, variant).to(data.train[0].device)
        self.fit_(variant, model, data.train, seed)
        return self.judged(variant, model, data) | {"seconds": time.perf_counter() - started}

    def fit_(self, method: str, model: nn.Module, train: tuple[Tensor, Tensor], seed: int) -> None:
        """Train in place."""
        slow = method == "vdp-cov"
        x, y = (part[: self.cov_images] for part in train) if slow else train
        bl.fit(
            model,
            (x, y),
            likelihood=bl.Categorical(),
            epochs=self.cov_epochs if slow else self.epochs,
            batch_size=self.cov_batch_size if slow else self.batch_size,
            optimizer=functools.partial(torch.optim.Adam, lr=self.lr, amsgrad=True, fused=True),
            kl_schedule=bl.schedules.constant(self.cov_kl_weight if slow else 1.0),
            seed=seed,
            progress=False,
        )

    def judged(self, method: str, model: nn.Module, data: Images) -> dict[str, Any]:
        """Scores of a trained network."""
        way = {"det": "mean", "bbb": "sample"}.get(method, "moments")
        options: dict[str, Any] = {"method": way, "samples": self.samples, "seed": 0}
        if method == "vdp-cov":  # one covariance pass for thousands of images takes a while
            few = self.cov_test_images
            test = data.test[0][:few], data.test[1][:few]
            data = data._replace(test=test, outliers=data.outliers[:few])
            options["batch_size"] = self.cov_batch_size
        x, y = data.test
        record: dict[str, Any] = compared(model, data, options)
        record["noise"] = [asdict(point) for point in noise_sweep(model, x, y, SNRS, **{**options, "samples": 50})]
        plain = model.model if isinstance(model, CovarianceNetwork) else model
        by = "moments" if method.startswith("vdp") else "mean"
        curve = magnitude_curve(plain, (x, y), self.fractions, likelihood=bl.Categorical(), method=by, samples=50)
        record["pruned"] = [{"fraction": point.fraction, "accuracy": point.scores["accuracy"]} for point in curve]
        for name, measure in (("infidelity", infidelity), ("sensitivity_max", sensitivity_max)):
            record[name] = measure(plain, x[: self.explained], method=by).mean().item()
        if method == "vdp":
            record["by_samples"] = compared(model, data, options | {"method": "sample"})
            record["by_taylor"] = compared(model, data, options | {"method": "taylor"})
            record["pass_ratio"] = _pass_ratio(model, x[:1024])
        return record

    @classmethod
    def merged(cls, records: Sequence[Record]) -> Record:
        """See `Experiment`; records of costs join those of runs."""
        trained = [part for part in records if "runs" in part]
        whole = {key: value for part in reversed(records) for key, value in part.items()}
        return whole | (super().merged(trained) if trained else {})


class CovarianceNetwork(nn.Module):
    """A network that answers by propagating covariances within its feature maps: trained and asked like any other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Gaussian:
        """Means and variances of the logits."""
        return full_covariance(self.model, x, mode="taylor", within="channel", memory_limit=2**37).marginals()


def build(config: VdpMnist, method: str) -> nn.Module:
    """The network of a method, freshly initialised."""
    plain = bl.models.lenet5()
    if method == "det":
        return plain
    prior, estimator = PRIORS[method](config.prior_std), bl.weight_sample if method == "bbb" else bl.moments
    bayesian = bl.bayesianize_(plain, posterior=fan_in_mean_field, prior=prior, estimator=estimator)
    return CovarianceNetwork(bayesian) if method == "vdp-cov" else bayesian


def costs(
    config: VdpMnist, images: tuple[Tensor, Tensor], modes: tuple[str, ...] = ("eager", "compiled")
) -> dict[str, dict[str, float]]:
    """Milliseconds (median) and peak bytes of one training step, eager and compiled; run it with nothing beside."""
    x, y = (part[: config.batch_size] for part in images)

    def step(method: str, mode: str) -> Callable[[], None]:
        model = build(config, method).to(x.device)
        optimizer = torch.optim.Adam(model.parameters(), amsgrad=True, fused=True)
        return train_step(model, x, y, optimizer=optimizer, compile=mode == "compiled")

    found: dict[str, dict[str, float]] = {}
    for mode in modes:
        possible = [name for name in config.methods if name != "vdp-cov" or (mode == "eager" and x.is_cuda)]
        builders = {f"{name}, {mode}": functools.partial(step, name, mode) for name in possible}
        for name, cost in costs_of(builders, rounds=21, device=x.device).items():
            found[name] = {"milliseconds": 1e3 * cost.time.seconds, "peak_bytes": cost.memory}
    return found


def compared(model: nn.Module, data: Images, options: dict[str, Any]) -> dict[str, float]:
    """Accuracy, calibration and detection of outliers by one way of predicting, and how long it takes."""
    x, y = data.test
    bl.predict(model, x[:64], likelihood=bl.Categorical(), **options)
    start = _now(x.device)
    prediction = bl.predict(model, x, likelihood=bl.Categorical(), **options)
    seconds = _now(x.device) - start
    strange = bl.predict(model, data.outliers, likelihood=bl.Categorical(), **options)
    y = y.to(prediction.mean.device)
    return {
        "accuracy": 100 * bl.metrics.accuracy(prediction.mean, y),
        "nll": bl.metrics.negative_log_likelihood(prediction.mean, y),
        "ece": bl.metrics.expected_calibration_error(prediction.mean, y),
        "ood_auroc": bl.metrics.auroc(prediction.entropy, strange.entropy),
        "predict_seconds": seconds,
    }


@torch.no_grad()
def _pass_ratio(model: nn.Module, x: Tensor) -> float:
    """Time of one moments pass over one mean pass."""
    plain = bl.collapse_(copy.deepcopy(model)).eval()
    return interleaved({"mean": lambda: plain(x), "moments": lambda: model(x)}, device=x.device)["moments"].ratio


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def main(arguments: list[str] | None = None) -> None:
    """Run the experiment from the command line."""
    parser = parser_of(VdpMnist)
    parser.add_argument("--costs", action="store_true", help="measure one training step of each method, and stop")
    chosen = parser.parse_args(arguments)
    if chosen.merge or not chosen.costs:
        carry_out(VdpMnist, chosen, methods)
        return
    config, images = VdpMnist.begin(chosen)
    ratio = _pass_ratio(build(config, "vdp").to(chosen.device), images.train[0][: config.batch_size])
    record = {**machine(chosen.device), "costs": costs(config, images.train), "pass_over_det": ratio}
    write_record(chosen.out, record)
    print(methods(record))
