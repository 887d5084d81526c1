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
from bayeslim_papers.k_tied import mnist
from bayeslim_papers.k_tied import part as parts
from bayeslim_papers.k_tied.cifar import Cifar100
from bayeslim_papers.k_tied.imdb import Imdb
from bayeslim_papers.k_tied.mnist import Mnist
from bayeslim_papers.k_tied.part import Part
from bayeslim_papers.k_tied.resnet import Resnet
from bayeslim_papers.k_tied.scoring import score
from papers.stand_in import StandIn, Stopped


@pytest.mark.parametrize("part", [Mnist(), Cifar100(), Imdb()], ids=lambda part: part.name)
def test_the_staircase(part: Part) -> None:
    """`min(1, 100 c floor(t / 100))`, t counts batches."""
    options = part.training(nn.Linear(1, 1))
    found = [options["kl_schedule"](Progress(step, 10, 9999)) for step in (99, 100, 250, 19_999, 20_000, 50_000)]
    assert found == pytest.approx([0.0, 0.005, 0.01, 0.995, 1.0, 1.0])
    assert isinstance(options["likelihood"], bl.Bernoulli if part.name == "imdb" else bl.Categorical)


def test_the_resnet_is_annealed_linearly_and_flipped() -> None:
    part = Resnet()
    model = part.build(0)
    layers = [layer for layer in model.modules() if isinstance(layer, bl.layers.BayesLayer)]
    assert layers and all(layer.estimator is bl.flipout for layer in layers)
    assert all(layer.prior.config() == {"mean": 0.0, "std": 1.0} for layer in layers)
    options = part.training(model)
    assert [options["kl_schedule"](Progress(step, 391, 700)) for step in (0, 391, 25 * 391, 50 * 391)] == [
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

    part, data = Mnist.quick(None, "cpu")
    monkeypatch.setattr(parts, "score", noted("score"))
    monkeypatch.setattr(parts, "truncated", noted("truncated"))
    facts = {"steps": 1, "precision": "float32", "kl_weight": 1.0, "seconds": 1.0}
    monkeypatch.setattr(parts, "train", lambda *arguments, **options: facts)
    monkeypatch.setattr(Mnist, "fit_", Part.fit_)
    part.measured("mean-field", 0, data)
    assert counts == [("score", 100, 320), ("score", 200, 320), ("truncated", 200, 320)]


def test_networks_of_mnist_are_trained_by_the_weights_of_their_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """The annealed one by the staircase, the probed one by the ELBO, each with its learning rate."""
    stand_in, (part, data) = StandIn(until=2), Mnist.quick(None, "cpu")
    monkeypatch.setattr(bl, "fit", stand_in)
    with pytest.raises(Stopped):
        dataclasses.replace(part, probe_steps=(11, 12)).measured("2-tied", 3, data)
    annealed, probed = stand_in.calls
    weights = [annealed["kl_schedule"](Progress(step, 5, 60)) for step in (0, 99, 100, 299)]
    assert weights == pytest.approx([0.0, 0.0, 0.01, 0.02])
    assert (annealed["epochs"], annealed["lr"], annealed["seed"]) == (20, 0.02, 3)
    assert "kl_schedule" not in probed and probed["epochs"] == 3 and probed["seed"] == 3  # five steps an epoch
    assert probed["optimizer"](bl.param_groups(stand_in.arguments[0])).param_groups[0]["lr"] == 3e-4


def test_probes_are_of_the_second_layer_by_the_second_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The footnote of the paper prints them so; the ten batches before a probe count."""
    counted: list[int] = []

    class Ratios:
        layers = ("0", "2", "4")

        def __init__(self, model: nn.Module, window: int) -> None:
            assert window == 10

        def update(self) -> None:
            counted.append(probe.step)

        def values(self, kind: str = "ratio", summary: str = "mean") -> dict[str, str]:
            return {name: f"{kind} {summary} {name}" for name in self.layers}

    monkeypatch.setattr(mnist, "GradientSNR", Ratios)
    part, data = Mnist.quick(None, "cpu")
    probe = mnist.Probe(dataclasses.replace(part, probe_steps=(12, 24)), part.build(0), data)
    for _ in range(30):
        probe.look()
    assert counted == [*range(3, 13), *range(15, 25)]
    assert [found["step"] for found in probe.found] == [12, 24]
    assert (probe.found[0]["snr"], probe.found[0]["snr_median"]) == ("second_moment mean 2", "second_moment median 2")
