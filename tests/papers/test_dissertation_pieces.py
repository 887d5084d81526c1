"""What the dissertation's experiments are made of."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.data import ImageData, TextData
from bayeslim.likelihoods.base import remember_likelihood_
from bayeslim.pruning import LOG_ALPHA, SIGNAL_TO_NOISE
from bayeslim_papers.dissertation.command import PAPER, TOLERANCE, Dissertation
from bayeslim_papers.dissertation.networks import Networks
from bayeslim_papers.dissertation.pruning import accuracies, error_sweep, errors
from bayeslim_papers.dissertation.regression import Curve
from bayeslim_papers.dissertation.reviews import Reviews, tokenised, words
from bayeslim_papers.dissertation.start import UnboundedKingma, scatter_


def images(split: str, root: Path | None = None) -> ImageData:
    """Ten noisy patterns."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 1, 28, 28, generator=generator)
    y = torch.arange(300) % 10
    noise = torch.randn(300, 1, 28, 28, generator=generator.manual_seed(len(split)))
    return ImageData(patterns[y] + 0.2 * noise, y, tuple("0123456789"))


def test_images_are_vectors_of_their_own_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bl.data, "fashion_mnist", images)
    data = Networks("fashion-mnist", rows=7).load(None, "cpu")
    assert torch.equal(data.train[0], images("train").x[:7].flatten(1)) and len(data.test[1]) == 7


def test_every_number_of_the_paper_has_a_variant() -> None:
    parts = Dissertation().parts
    for part in ("mnist", "fashion-mnist", "moons", "imdb"):
        variants = {name.removeprefix("elbo/") for name in parts[part].variants()}
        assert set(PAPER[part]) - {"plain"} <= variants and TOLERANCE[part] > 0
    # 160 of 600 weights and 61 of 200: Two Moons had LeNet-300-100 too.
    first, _, last = PAPER["moons"]["molchanov/frequentist"]["sparsity"]
    assert first == pytest.approx(100 * 160 / 600, abs=0.01) and last == 100 * 61 / 200


class Biased(nn.Module):
    """Logits (0, w) whatever the input, `w ~ N(0.5, 1)`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = bl.layers.Linear.from_torch(nn.Linear(1, 1, bias=False), posterior=bl.posteriors.MeanField)
        self.layer.weight = bl.posteriors.MeanField(torch.full((1, 1), 0.5), scale=1.0)

    def forward(self, x: Tensor) -> Tensor:
        """The same for every row."""
        return torch.cat([torch.zeros_like(x), self.layer(torch.ones_like(x))], 1)


def test_errors_are_those_of_the_averaged_prediction() -> None:
    data = torch.zeros(4, 1), torch.ones(4, dtype=torch.long)
    alone = [errors(Biased(), data, (1,), seed)[1] / 100 for seed in range(200)]
    assert set(alone) == {0.0, 1.0}  # all rows see the same weight
    expected = 0.5 * math.erfc(0.5 / math.sqrt(2))  # P(w < 0)
    assert abs(sum(alone) / 200 - expected) < 5 * math.sqrt(expected * (1 - expected) / 200)
    many = errors(Biased(), data, (1, 800), seed=alone.index(1.0))
    assert many == {1: 100.0, 800: 0.0}  # the mean of sigmoid(w) is 0.6, 14 standard errors above a half


def test_a_sweep_shows_mean_and_deviation_over_predictions() -> None:
    data = torch.zeros(4, 1), torch.ones(4, dtype=torch.long)
    values = torch.tensor([errors(Biased(), data, (1, 3), seed)[1] for seed in range(7)])
    sweep = error_sweep(Biased(), data, (1, 3), repetitions=7)
    assert list(sweep) == ["1", "3"]
    assert sweep["1"] == pytest.approx({"mean": values.mean().item(), "std": values.std().item()})


def test_accuracies_with_and_without_pruning() -> None:
    """Two inputs that decide the class, 18 that are noise: pruning keeps the answer, chance does not."""
    torch.manual_seed(0)
    model = bl.mlp([20, 2], method="molchanov")
    layer: Any = model[0]
    with torch.no_grad():
        layer.weight.loc.fill_(1e-3)
        layer.weight.loc[:, :2] = torch.tensor([[5.0, 0.0], [0.0, 5.0]]) + 1e-3
        layer.weight.set_scale_(0.05)
    x = torch.rand(500, 20)
    before = copy.deepcopy(model.state_dict())
    found = accuracies(model, (x, (x[:, 1] > x[:, 0]).long()), LOG_ALPHA, samples=20, seed=3)
    assert found["sparsity"] == [pytest.approx(38 / 40)] == found["sparsity_log_alpha"]
    assert found["accuracy"]["none"] > 97 and found["accuracy"]["principled"] > 97
    assert found["accuracy"]["random"] < 75
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_kingmas_polynomial_beyond_its_range() -> None:
    prior, bounded = UnboundedKingma(), bl.priors.LogUniform(fit="kingma")
    mean = torch.tensor([0.3, -2.0, 1.0])
    variance = mean.square() * torch.tensor([1e-4, 0.3, 1.0])
    torch.testing.assert_close(prior.kl(mean, variance), bounded.kl(mean, variance))
    beyond = prior.kl(torch.ones(3), torch.tensor([0.5, 1.0, 3.0]).exp())
    without_constant = torch.tensor([-0.71, -4.3, -4170.0])
    torch.testing.assert_close(beyond, without_constant + 0.6554, rtol=0.002, atol=0.05)
    found = prior.kl(torch.ones(()), torch.ones(()).mul(3).exp()).item()
    assert f"tensor({found:.1f}...)" in (UnboundedKingma.__doc__ or "")


@pytest.mark.parametrize(
    ("method", "criterion", "part"), [("molchanov", LOG_ALPHA, 0.198), ("graves", SIGNAL_TO_NOISE, 0.60)]
)
def test_random_starts_are_partly_dead(method: str, criterion: bl.pruning.Criterion, part: float) -> None:
    model = bl.mlp([200, 200], method=method)
    torch.manual_seed(0)
    scatter_(model)
    assert bl.sparsity(model, criterion=criterion) == pytest.approx(part, abs=5 * 0.5 / 200)
    mean, log_variance = model.get_parameter("0.weight.loc"), 2 * model.get_parameter("0.weight.log_scale")
    for drawn in (mean, log_variance):
        assert drawn.mean().item() == pytest.approx(0, abs=5 / 200)
        assert drawn.std().item() == pytest.approx(1, abs=5 / 200)


def test_networks_around_a_plain_one() -> None:
    settings = Networks(sizes=(3, 4, 2))
    plain = bl.models.mlp(settings.sizes)
    for objective, variance in (("elbo", math.exp(-10)), ("dissertation", 1.0)):
        for method in ("graves", "molchanov"):
            model = settings.build(objective, method, plain)
            layers = [layer for layer in model if isinstance(layer, bl.layers.Linear)]
            for layer, source in zip(layers, (plain[0], plain[2]), strict=True):
                assert isinstance(source, nn.Linear) and torch.equal(layer.weight.mean(), source.weight)
                torch.testing.assert_close(layer.weight.variance(), torch.full_like(source.weight, variance))
                assert objective == "elbo" or layer.estimator is bl.weight_sample


def test_words_and_their_numbers() -> None:
    assert words("It's a cliché,<br />I KNOW\nx1") == ["its", "cliche", "know", "x1"]
    train = TextData(("bb aa aa", "aa cc", "bb cc dd"), torch.tensor([0, 1, 0]), torch.ones(3))
    test = TextData(("cc ee aa bb",), torch.tensor([1]), torch.ones(1))
    tokens = tokenised(train, test, least_reviews=2, length=3, device="cpu")
    assert tokens.vocabulary == 5  # padding, unknown, aa, bb, cc
    assert tokens.train[0].tolist() == [[3, 2, 2], [2, 4, 0], [3, 4, 1]]
    assert tokens.test[0].tolist() == [[4, 1, 2]] and tokens.test[1].tolist() == [1]


def test_the_transformer_has_the_size_of_the_notebook() -> None:
    settings = Reviews()
    model = settings.build("dissertation", "feed-forward", 1119)
    assert sum(parameter.numel() for parameter in model.parameters()) == 56_674
    rows = model(torch.ones(2, 9, dtype=torch.long)).sum(1)
    torch.testing.assert_close(rows, torch.ones(2))  # a softmax before that of the loss
    assert len(bl.named_sparsity(settings.build("elbo", "block", 50))) == 6
    weight = model.get_parameter("0.layers.0.linear1.weight.loc")
    assert weight.abs().max().item() <= math.sqrt(6 / (32 + 128))  # Glorot


def test_coverage_of_the_regression() -> None:
    """A network that knows nothing but the noise: its band holds 95 % of targets that are noise."""
    settings = Curve(samples=3)
    model = bl.models.mlp((1, 4, 1), "sin")
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    x = torch.zeros(4000, 1)
    y = 0.3 * torch.randn(4000, 1, generator=torch.Generator().manual_seed(0))
    data = bl.data.RegressionData(x, y, x, y)
    remember_likelihood_(model, bl.likelihoods.Gaussian(0.3))
    found = settings.judged(model, data)
    assert abs(found["coverage"] - 95) < 5 * 100 * math.sqrt(0.95 * 0.05 / 4000)
    assert found["width"] == pytest.approx(2 * 1.959964 * 0.3) and found["mean_coverage"] == 0
    assert found["mse"] == pytest.approx(y.square().mean().item(), rel=1e-4)
