"""`predict` on every network of `bl.models`, against a loop of drawn weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim import models
from bayeslim.likelihoods import Gaussian, Likelihood
from bayeslim.posteriors import MeanField
from contracts.two_samples import assert_same_moments


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def tokens(*shape: int) -> Tensor:
    return torch.randint(0, 20, shape, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Case:
    build: Callable[[], nn.Module]
    x: Tensor
    likelihood: Likelihood
    output: tuple[int, ...]
    samples: int = 300
    scale: float = 0.05


CLASSES, PIXELS, REAL = bl.Categorical(), bl.Bernoulli(), Gaussian(noise=0.5)
CASES: dict[str, Case] = {
    "mlp": Case(lambda: models.mlp([6, 8, 3]), noise(3, 6), CLASSES, (3,), 2000),
    "lenet_300_100": Case(models.lenet_300_100, noise(2, 1, 28, 28), CLASSES, (10,), 200),
    "lenet5_caffe": Case(models.lenet5_caffe, noise(2, 1, 28, 28), CLASSES, (10,), 200),
    "cnn_k_tied": Case(models.cnn_k_tied, noise(2, 3, 32, 32), CLASSES, (100,), 40),
    "vgg_like": Case(lambda: models.vgg_like(width=1 / 16), noise(2, 3, 32, 32), CLASSES, (10,)),
    "resnet18": Case(lambda: models.resnet18(width=4), noise(2, 3, 8, 8), CLASSES, (10,)),
    "resnet50": Case(lambda: models.resnet50(10, width=2), noise(2, 3, 40, 40), CLASSES, (10,)),
    "resnet34": Case(lambda: models.resnet34(width=2), noise(2, 3, 8, 8), CLASSES, (10,)),
    "resnet_k_tied": Case(models.resnet_k_tied, noise(1, 3, 32, 32), CLASSES, (10,), 20, 0.01),
    "LSTMClassifier": Case(lambda: models.LSTMClassifier(20, 6, 5), tokens(3, 7), PIXELS, (1,), 1000, 0.3),
    "TransformerClassifier": Case(lambda: models.TransformerClassifier(20), tokens(3, 7), CLASSES, (2,), 600),
    "TransformerClassifier-mask": Case(
        lambda: models.TransformerClassifier(20, layers=2, padding_mask=True, qkv_bias=True),
        tokens(3, 7),
        CLASSES,
        (2,),
    ),
    "ViT": Case(
        lambda: models.ViT(dim=16, depth=2, heads=2, hidden=32, qkv_bias=True), noise(2, 1, 28, 28), CLASSES, (10,)
    ),
    "vit_small": Case(models.vit_small, noise(2, 1, 28, 28), CLASSES, (10,), 100),
    "dense_autoencoder-bernoulli": Case(
        lambda: models.dense_autoencoder((36, 12, 3)), noise(3, 36).sigmoid(), PIXELS, (36,), 1000
    ),
    "dense_autoencoder-gaussian": Case(
        lambda: models.dense_autoencoder((36, 12, 3)), noise(3, 6, 6), REAL, (36,), 1000
    ),
    "conv_autoencoder-bernoulli": Case(
        lambda: models.conv_autoencoder(code=6, width=4), noise(2, 1, 28, 28).sigmoid(), PIXELS, (1, 28, 28)
    ),
    "conv_autoencoder-gaussian": Case(
        lambda: models.conv_autoencoder(code=6, width=4), noise(2, 1, 28, 28), REAL, (1, 28, 28)
    ),
}


def network(case: Case) -> nn.Module:
    """Converted, in training mode, with running statistics that are not the initial ones."""
    torch.manual_seed(0)
    model = case.build()
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        with torch.no_grad():
            model(case.x.repeat(4, 1, 1, 1))
    return bl.bayesianize_(model, posterior=functools.partial(MeanField, scale=case.scale))


def loop(model: nn.Module, case: Case) -> Tensor:
    """Conditional means of networks drawn one after the other."""
    model.eval()
    with torch.no_grad(), bl.using(model, bl.weight_sample):
        torch.manual_seed(3)
        outputs = torch.stack([model(case.x) for _ in range(case.samples)])
    model.train()
    return case.likelihood.conditional(outputs.flatten(0, 1)).mean.unflatten(0, outputs.shape[:2])


@pytest.mark.parametrize("name", CASES)
def test_predictions_agree_with_a_loop_over_networks(name: str) -> None:
    case = CASES[name]
    model = network(case)
    buffers = [buffer.clone() for buffer in model.buffers()]
    found = bl.predict(
        model, case.x, samples=case.samples, likelihood=case.likelihood, keep_samples=True, seed=2, batch_size=2
    )
    shape = (len(case.x), *case.output)
    for part in (found.mean, found.epistemic, found.aleatoric):
        assert part.shape == shape and bool(part.isfinite().all())
    assert bool((found.epistemic > 0).all())
    assert found.samples is not None and found.samples.shape == (case.samples, *shape)
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), buffers, strict=True))
    expected = loop(model, case)
    assert_same_moments(found.samples, expected)
    # All outputs together: the average variance, whose error is at most that of one output.
    ratio = found.epistemic.mean() / expected.var(0).mean()
    assert abs(math.log(ratio.item())) < 5 * math.sqrt(2 * 2 / case.samples)


@pytest.mark.parametrize("name", ["LSTMClassifier", "TransformerClassifier", "conv_autoencoder-gaussian", "resnet18"])
def test_the_mean_is_one_pass_without_noise(name: str) -> None:
    case = CASES[name]
    model = network(case)
    found = bl.predict(model, case.x, likelihood=case.likelihood, method="mean")
    with torch.no_grad(), bl.using(model.eval(), bl.mean_only):
        expected = case.likelihood.conditional(model(case.x)).mean
    torch.testing.assert_close(found.mean, expected)
    assert not found.epistemic.any()


@pytest.mark.parametrize("estimator", [bl.flipout, bl.moments])
def test_the_estimator_of_training_does_not_matter(estimator: Any) -> None:
    """Layers that train by flipout or moments draw weights here, as the others do."""
    case = CASES["conv_autoencoder-gaussian"]
    model = network(case)
    for module in model.modules():
        if isinstance(module, bl.layers.BayesLayer):
            module.estimator = estimator
    other = bl.predict(model, case.x, samples=50, likelihood=case.likelihood, seed=4)
    same = bl.predict(network(case), case.x, samples=50, likelihood=case.likelihood, seed=4)
    torch.testing.assert_close(other.epistemic, same.epistemic)


@pytest.mark.filterwarnings("ignore:There is a performance drop.*_native_multi_head_attention")
@pytest.mark.filterwarnings("ignore:There is a performance drop.*_transformer_encoder_layer_fwd")
@pytest.mark.parametrize("part", ["linear", "table", "head"])
def test_networks_that_are_bayesian_in_part(part: str) -> None:
    """Plain torch layers behind Bayesian ones, also those with fused kernels of their own."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True)
            self.encoder = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
            )
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(self.lstm(self.table(x))[0]).mean(1))

    torch.manual_seed(0)
    model = bl.bayesianize_(
        Net(), posterior=functools.partial(MeanField, scale=0.2), where=lambda name, module: part in name
    )
    case = Case(Net, tokens(3, 7), CLASSES, (3,), 300)
    found = bl.predict(model, case.x, samples=300, likelihood=CLASSES, keep_samples=True, seed=5)
    assert found.samples is not None
    assert_same_moments(found.samples, loop(model, case))
