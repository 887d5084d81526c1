"""Settings, objectives and numbers of the k-tied experiment are those of arXiv 2002.02655."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.data import ImageData
from bayeslim.schedules import Progress
from bayeslim_papers.k_tied import Cifar100, Imdb, Mnist, Resnet, mnist
from bayeslim_papers.k_tied import part as parts
from bayeslim_papers.k_tied.paper import STANDARD_ERRORS
from bayeslim_papers.k_tied.part import Part
from bayeslim_papers.k_tied.scoring import score
from bayeslim_papers.k_tied.table import table

SHARED = {"ranks": (0, 1, 2, 3), "cuts": (1, 2, 3), "epochs": 300, "samples": 100}
STAIRS = {"anneal_rate": 5e-5, "scale": 0.01}
"""Rates 5e-5 and 5e-6 are in the paper."""


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            Mnist(),
            SHARED | STAIRS | {"sizes": (784, 400, 400, 10), "batch_size": 1024, "probe_steps": (1000, 5000, 9000)},
        ),
        (Cifar100(), SHARED | STAIRS | {"batch_size": 1024}),
        (Imdb(), SHARED | STAIRS | {"batch_size": 128, "vocabulary": 20_000, "length": 80, "width": 128}),
        (
            Resnet(),
            {
                "cuts": (1, 2, 3),
                "batch_size": 128,
                "epochs": 700,
                "lr": 1e-4,
                "ramp": 50,
                "prior_std": 1.0,
                "mean_std": 0.1,
                "raw_scale": -9.0,
                "raw_scale_std": 0.1,
                "samples": 100,
            },
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Part) else "",
)
def test_settings_are_those_of_the_paper(part: Part, expected: dict[str, Any]) -> None:
    assert {name: getattr(part, name) for name in expected} == expected
    if part.name != "resnet":
        assert part.lr in (1e-4, 3e-4, 1e-3, 3e-3) and part.prior_std in (0.2, 0.3)  # its grids
        assert mnist.WINDOW == 10


@pytest.mark.parametrize("part", [Mnist(), Cifar100(), Imdb()], ids=lambda part: part.name)
def test_the_staircase(part: Part) -> None:
    """`min(1, 100 c floor(t / 100))`, t counts batches."""
    options = part.training(nn.Linear(1, 1))
    found = [options["annealing"](Progress(step, 10, 9999)) for step in (99, 100, 250, 19_999, 20_000, 50_000)]
    assert found == pytest.approx([0.0, 0.005, 0.01, 0.995, 1.0, 1.0])
    assert isinstance(options["likelihood"], bl.Bernoulli if part.name == "imdb" else bl.Categorical)


def test_the_resnet_is_annealed_linearly_and_flipped() -> None:
    part = Resnet()
    model = part.build(0)
    layers = [layer for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert layers and all(layer.estimator is bl.flipout for layer in layers)
    assert all(layer.prior.config() == {"mean": 0.0, "std": 1.0} for layer in layers)
    options = part.training(model)
    assert [options["annealing"](Progress(step, 391, 700)) for step in (0, 391, 25 * 391, 50 * 391)] == [
        0,
        0.02,
        0.5,
        1,
    ]
    assert isinstance(options["likelihood"], bl.Categorical)


def test_mnist_is_scaled_to_minus_one_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def images(split: str, root: Path | None = None) -> ImageData:
        x = torch.linspace(0, 1, 4).view(1, 1, 2, 2).expand(10_002, 1, 2, 2)
        return ImageData(x, torch.zeros(10_002, dtype=torch.long), ("one",))

    monkeypatch.setattr(bl.data, "mnist", images)
    splits = Mnist().load(None, "cpu")
    for x, count in ((splits.train[0], 2), (splits.test[0], 10_002)):
        assert len(x) == count
        torch.testing.assert_close(x[0], torch.tensor([-1.0, -1 / 3, 1 / 3, 1.0]))


class Alternating(nn.Module):
    """Two classes whose log odds are 3 and -1 by turns: a posterior of two networks."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """One of the two."""
        self.calls += 1
        return torch.tensor([3.0 if self.calls % 2 else -1.0, 0.0]).expand(len(x), 2)


def test_the_expected_log_loss_is_a_mean_over_samples() -> None:
    data = torch.zeros(5, 1), torch.zeros(5, dtype=torch.long)
    losses = [torch.nn.functional.softplus(torch.tensor(-odds)).item() for odds in (3.0, -1.0)]
    network = nn.Sequential(Alternating())
    for samples in (2, 10):
        assert score(network, data, 320, samples)["nelbo"] == pytest.approx(sum(losses) / 2, rel=1e-5)


def test_the_divergence_is_spread_over_the_training_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not over the test or validation examples; the same for cut scales."""
    counts: list[tuple[str, int, int]] = []

    def noted(name: str) -> Any:
        def note(model: nn.Module, *how: Any) -> dict[str, Any]:
            data, num_data, samples = how[-4:-1]
            counts.append((name, len(data[1]), num_data))
            assert samples == 20
            return {}

        return note

    part, data = Mnist.quick("cpu")
    monkeypatch.setattr(parts, "score", noted("score"))
    monkeypatch.setattr(parts, "truncated", noted("truncated"))
    monkeypatch.setattr(parts, "train", lambda *arguments, **options: {})
    monkeypatch.setattr(Mnist, "fit_", Part.fit_)
    part.measured(0, 0, data)
    assert counts == [("score", 100, 320), ("score", 200, 320), ("truncated", 200, 320)]


def test_networks_of_mnist_are_trained_by_the_weights_of_their_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annealed one by the staircase, the probed one by 1, each with its learning rate."""
    weights: list[float] = []
    rates: list[tuple[float, int]] = []

    class Noted:
        def __init__(self, model: nn.Module, likelihood: Any, optimizer: torch.optim.Optimizer, num_data: int) -> None:
            self.seen: list[Any] = []
            rates.append((optimizer.param_groups[0]["lr"], num_data))

        def step(self, batches: Any, beta: float, factor: float) -> None:
            weights.append(beta)

    part, data = Mnist.quick("cpu")
    part = dataclasses.replace(part, epochs=60, anneal_rate=1e-3, lr=0.02, probe_lr=0.03, probe_steps=(99,))
    monkeypatch.setattr(mnist, "Stepper", Noted)
    model = part.build(0)
    part._train(model, data, 0, 300, anneal=True)  # pyright: ignore[reportPrivateUsage]
    assert [weights[step] for step in (0, 99, 100, 299)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    weights.clear()
    part._train(model, data, 0, 1, anneal=False)  # pyright: ignore[reportPrivateUsage]
    assert weights == [1.0] and rates == [(0.02, 320), (0.03, 320)]


def test_probes_are_of_the_second_layer_by_the_second_moment() -> None:
    """As the footnote prints them."""

    class Ratios:
        layers = ("0", "2", "4")

        def values(self, kind: str = "ratio", summary: str = "mean") -> dict[str, str]:
            return {name: f"{kind} {summary} {name}" for name in self.layers}

    part, data = Mnist.quick("cpu")
    ratios: Any = Ratios()
    assert data.validation is not None
    found: dict[str, Any] = part._probed(part.build(0), ratios, data.validation, 320)  # pyright: ignore[reportPrivateUsage]
    assert (found["snr"], found["snr_median"]) == ("second_moment mean 2", "second_moment median 2")


def test_standard_errors_are_the_largest_of_figure_6() -> None:
    """-ELBO, NLL and accuracy; of the ResNet those of table 3."""
    assert STANDARD_ERRORS == {
        "mnist": (0.0063, 0.0043, 0.19),
        "cifar100": (0.019, 0.016, 0.50),
        "imdb": (0.0054, 0.0052, 0.26),
        "resnet": (0.012, 0.0080, 0.39),
    }
    scores = {"nelbo": 0.5, "nll": 0.1, "accuracy": 97.0}
    run = {"posterior": "2-tied", "annealed": scores, "parameters": 7}
    shown = table({"part": "imdb", "runs": [run]}).splitlines()[-1]
    assert shown == (
        "Largest standard errors of the paper's numbers in figure 6, over test examples: "
        "-ELBO 0.0054, NLL 0.0052, accuracy % 0.26."
    )
