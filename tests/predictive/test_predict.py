"""Predictions against closed forms, brute force and their own definition."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayeslim as bl
from bayeslim.likelihoods import Gaussian
from bayeslim.posteriors import KTied, MatrixNormal, MeanField
from contracts.statistics import assert_gaussian_moments, assert_within

SAMPLES = 20_000
MeanField03 = functools.partial(MeanField, scale=0.3)


def classifier(method: str = "graves") -> nn.Sequential:
    torch.manual_seed(0)
    return bl.mlp([3, 8, 4], init_log_variance=-1.5, method=method)


def inputs(count: int = 5, features: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("estimator", [None, bl.weight_sample, bl.local_reparam, bl.flipout])
def test_a_linear_model_has_its_exact_predictive(estimator: Callable[..., Any] | None) -> None:
    """`f = x w + b` is Gaussian with mean `x m + mb` and variance `x^2 v + vb`; the noise comes on top."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 2, posterior=MeanField03, bias_posterior=MeanField03).double()
    assert isinstance(layer.weight, MeanField) and isinstance(layer.bias, MeanField)
    x = inputs().double()
    likelihood = Gaussian(noise=0.5).double()
    prediction = bl.predict(
        layer, x, samples=SAMPLES, likelihood=likelihood, estimator=estimator, keep_samples=True, seed=0
    )
    mean = x @ layer.weight.loc.T + layer.bias.loc
    variance = x.square() @ layer.weight.log_scale.exp().square().T + layer.bias.log_scale.exp().square()
    assert prediction.samples is not None
    assert_gaussian_moments(prediction.samples, mean, variance)
    assert_within(prediction.mean - mean, (variance / SAMPLES).sqrt())
    assert_within(prediction.epistemic - variance, variance * math.sqrt(2 / SAMPLES))
    assert torch.allclose(prediction.aleatoric, torch.tensor(0.25, dtype=torch.float64))
    assert torch.allclose(prediction.total, prediction.epistemic + 0.25)
    assert torch.allclose(prediction.std, prediction.total.sqrt())
    # A Gaussian's entropy, and the information about the weights in one observation.
    assert torch.allclose(prediction.entropy, 0.5 * (2 * math.pi * math.e * prediction.total).log())
    assert torch.allclose(prediction.mutual_information, 0.5 * (prediction.total / 0.25).log())


@pytest.mark.parametrize("posterior", [functools.partial(MatrixNormal, scale=0.3), functools.partial(KTied, scale=0.3)])
def test_correlated_and_tied_weights_have_their_exact_predictive(posterior: Callable[..., Any]) -> None:
    """The variance of `x w` from 200 000 dense draws of `w`, beside the prediction's own noise."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(3, 2, posterior=posterior, bias=False).double()
    with torch.no_grad():
        for name in layer.weight.scale_parameters:
            scale = layer.weight.get_parameter(name)
            scale.add_(0.3 * torch.randn_like(scale))
    x = inputs().double()
    with torch.no_grad():
        draws = torch.vmap(lambda _: layer.weight.rsample(), randomness="different")(torch.zeros(200_000))
    variance = (x @ draws.mT).var(0)
    found = bl.predict(layer, x, samples=SAMPLES, likelihood=Gaussian(0.5), seed=0).epistemic
    assert_within(found - variance, variance * math.sqrt(2 / SAMPLES + 2 / 200_000))


def test_a_network_agrees_with_a_loop_over_its_weights() -> None:
    """Means, spreads and entropies of the class probabilities against 4000 networks drawn one by one."""
    model, x = classifier(), inputs()
    loop: list[Tensor] = []
    torch.manual_seed(2)
    with torch.no_grad():
        for _ in range(4000):
            hidden = x
            for layer in model:
                if isinstance(layer, bl.layers.Linear):
                    assert isinstance(layer.weight, MeanField) and isinstance(layer.bias, Tensor)
                    noise = torch.randn_like(layer.weight.loc)
                    hidden = hidden @ (layer.weight.loc + layer.weight.log_scale.exp() * noise).T + layer.bias
                else:
                    hidden = hidden.clamp_min(0)
            loop.append(hidden.exp() / hidden.exp().sum(1, keepdim=True))
    brute = torch.stack(loop)
    found = bl.predict(model, x, samples=4000, likelihood=bl.Categorical(), keep_samples=True, seed=3)
    assert found.samples is not None
    for statistic in (lambda p: p, lambda p: (p - brute.mean(0)).square(), lambda p: p * p.log()):
        ours, theirs = statistic(found.samples), statistic(brute)
        error = ((ours.var(0) + theirs.var(0)) / 4000).sqrt()
        assert_within(ours.mean(0) - theirs.mean(0), error)


def test_moments_are_those_of_the_kept_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """By numpy in float64, over many uneven chunks and batches."""
    monkeypatch.setattr("bayeslim.predictive.networks.ROWS_AT_ONCE", 40)
    monkeypatch.setattr("bayeslim.predictive.networks.WEIGHTS_AT_ONCE", 56 * 30)
    model = classifier()
    found = bl.predict(
        model, inputs(17), samples=101, likelihood=bl.Categorical(), keep_samples=True, batch_size=6, seed=0
    )
    assert found.samples is not None and found.sample_variances is not None
    p = found.samples.numpy().astype(np.float64)
    assert p.shape == (101, 17, 4)
    np.testing.assert_allclose(found.mean, p.mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.epistemic, p.var(0), rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(found.aleatoric, (p * (1 - p)).mean(0), rtol=1e-5)
    np.testing.assert_allclose(found.sample_variances, p * (1 - p), rtol=1e-4, atol=1e-7)
    averaged, conditional = (-(q * np.log(q)).sum(-1) for q in (p.mean(0), p))
    np.testing.assert_allclose(found.entropy, averaged, rtol=1e-5)
    np.testing.assert_allclose(found.mutual_information, averaged - conditional.mean(0), rtol=1e-3, atol=1e-6)
    # The law of total variance: a one-hot target with probability p has variance p (1 - p).
    np.testing.assert_allclose(found.total, p.mean(0) * (1 - p.mean(0)), rtol=1e-4)
    assert (found.mutual_information >= 0).all() and (found.mutual_information <= found.entropy + 1e-6).all()
    assert torch.equal(found.classes, found.mean.argmax(1)) and len(found) == 17


@pytest.mark.parametrize(
    ("rows", "weights", "batch_size"), [(1, 0, 5), (7, 112, 2), (100_000, 1_000_000, None), (16, 500, 1), (16, 0, None)]
)
def test_chunks_and_batches_do_not_matter(
    rows: int, weights: int, batch_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = classifier(), inputs()
    options: dict[str, Any] = {"samples": 1000, "likelihood": bl.Categorical(), "keep_samples": True}
    whole = bl.predict(model, x, seed=0, **options)
    monkeypatch.setattr("bayeslim.predictive.networks.ROWS_AT_ONCE", rows)
    monkeypatch.setattr("bayeslim.predictive.networks.EXAMPLES_AT_ONCE", 2)
    monkeypatch.setattr("bayeslim.predictive.networks.WEIGHTS_AT_ONCE", weights)
    parts = bl.predict(model, x, seed=1, batch_size=batch_size, **options)
    assert whole.samples is not None and parts.samples is not None and len(parts.samples) == 1000
    assert_within(parts.mean - whole.mean, (2 * whole.epistemic / 1000).sqrt())
    spread = [(p.samples - whole.mean).square() for p in (whole, parts)]  # pyright: ignore
    assert_within(spread[0].mean(0) - spread[1].mean(0), ((spread[0].var(0) + spread[1].var(0)) / 1000).sqrt())


def test_one_draw_of_the_weights_serves_a_whole_pass() -> None:
    """Equal inputs get equal outputs under weight_sample; by default every example has its own noise."""
    x = inputs(1).expand(3, 3)
    options: dict[str, Any] = {"samples": 20, "likelihood": bl.Categorical(), "keep_samples": True, "seed": 0}
    joint = bl.predict(classifier(), x, estimator=bl.weight_sample, **options).samples
    own = bl.predict(classifier(method="molchanov"), x, **options).samples
    assert joint is not None and own is not None
    assert torch.allclose(joint[:, 0], joint[:, 1]) and not torch.allclose(own[:, 0], own[:, 1])
    assert len({tuple(row) for row in joint[:, 0].tolist()}) == 20


@pytest.mark.parametrize("own", [bl.local_reparam, bl.flipout, bl.weight_sample])
def test_pooled_convolutions_keep_the_variance_of_shared_weights(own: Callable[..., Any]) -> None:
    """On a constant image every position has the same output, so pooling must not average the noise away."""
    torch.manual_seed(0)
    layer = bl.layers.Conv2d(1, 2, 3, posterior=MeanField03, bias=False, estimator=own)
    model = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.full((1, 1, 8, 8), 1.5)
    variance = torch.full((1, 2), 9 * 1.5**2 * 0.3**2)
    found = bl.predict(model, x, samples=SAMPLES, likelihood=Gaussian(), seed=0).epistemic
    assert_within(found - variance, variance * math.sqrt(2 / SAMPLES))
    forced = bl.predict(model, x, samples=2000, likelihood=Gaussian(), estimator=bl.local_reparam, seed=0)
    assert_within(forced.epistemic - variance / 36, variance / 36 * math.sqrt(2 / 2000))
    assert layer.estimator is own


def test_pooled_tokens_keep_the_variance_of_shared_weights() -> None:
    torch.manual_seed(0)
    layer = bl.layers.Linear(2, 1, posterior=MeanField03, bias=False)
    model = nn.Sequential(layer, nn.Flatten(), nn.AvgPool1d(10))
    found = bl.predict(model, torch.ones(1, 10, 2), samples=SAMPLES, likelihood=Gaussian(), seed=0).epistemic
    assert_within(found - 2 * 0.09, 2 * 0.09 * math.sqrt(2 / SAMPLES))


def test_the_seed_decides_and_the_global_state_is_left_alone() -> None:
    model, x = classifier(), inputs()
    run = functools.partial(bl.predict, model, x, samples=10, likelihood=bl.Categorical())
    before = torch.get_rng_state()
    first, second, other = run(seed=0), run(seed=0), run(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.mean, second.mean) and not torch.equal(first.mean, other.mean)
    torch.manual_seed(4)
    third = run()
    torch.manual_seed(4)
    assert torch.equal(run().mean, third.mean)


def test_every_form_of_input_is_the_same() -> None:
    model, x = classifier(), inputs(10)
    run = functools.partial(bl.predict, model, samples=7, likelihood=bl.Categorical(), batch_size=4, seed=0)
    expected = run(x).mean
    forms: list[Any] = [x.double(), x.numpy(), x.double().numpy(), x.tolist()]
    for form in forms:
        assert torch.equal(run(form).mean, expected)
    labels = torch.zeros(10)
    by_pairs = run(DataLoader(TensorDataset(x, labels), 4)).mean
    assert torch.equal(run(DataLoader(x, 4)).mean, by_pairs)  # pyright: ignore[reportArgumentType]
    assert torch.equal(run(TensorDataset(x)).mean, by_pairs)
    # A loader draws a seed for its workers first, so its noise differs; its moments do not.
    options: dict[str, Any] = {"samples": 4000, "likelihood": bl.Categorical(), "seed": 0}
    by_loader = bl.predict(model, DataLoader(TensorDataset(x, labels), 4), **options)
    by_tensor = bl.predict(model, x, **options)
    assert_within(by_loader.mean - by_tensor.mean, (2 * by_tensor.epistemic / 4000).sqrt())


def modes(model: nn.Module) -> list[tuple[bool, Any]]:
    return [(module.training, getattr(module, "estimator", None)) for module in model.modules()]


def test_modes_and_estimators_come_back() -> None:
    model = nn.Sequential(
        bl.layers.Linear(3, 4, estimator=bl.flipout),
        nn.BatchNorm1d(4),
        nn.Dropout(0.5),
        bl.layers.Linear(4, 4, estimator=bl.mean_only),
        bl.layers.Linear(4, 2, estimator=bl.local_reparam),
    )
    model[1].eval()
    before = modes(model)
    runs: list[dict[str, Any]] = [{}, {"method": "mean"}, {"estimator": bl.weight_sample}]
    for options in runs:
        bl.predict(model, inputs(), samples=3, likelihood=bl.Categorical(), **options)
        assert modes(model) == before
        with pytest.raises(ValueError, match="does not accept inputs"):
            bl.predict(model, inputs(features=4), samples=3, likelihood=bl.Categorical(), **options)
        assert modes(model) == before
    bl.predict(model, inputs(), likelihood=bl.Categorical(), method="moments")
    assert modes(model) == before
    model[2] = nn.LocalResponseNorm(2)
    before = modes(model)
    with pytest.raises(TypeError, match="no moment rule for"):
        bl.predict(model, inputs(), likelihood=bl.Categorical(), method="moments")
    assert modes(model) == before
