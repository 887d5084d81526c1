"""Random networks from conversion to export: what must hold for every one of them."""

import copy
import itertools
import math
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.export import export_onnx, load_slim, sample_networks, save_slim
from contracts.cases import each

ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.SiLU, nn.LeakyReLU, nn.Identity]
POSTERIORS: list[Any] = [
    bl.posteriors.MeanField,
    partial(bl.posteriors.KTied, k=1),
    bl.posteriors.Multiplicative,
]
PRIORS: list[Any] = [
    bl.priors.Normal,
    bl.priors.HeNormal,
    bl.priors.LogUniform,
    bl.priors.ARD,
    bl.priors.GammaARD,
    bl.priors.StudentT,
    bl.priors.ScaleMixture,
]
ESTIMATORS = [bl.weight_sample, bl.local_reparam, bl.flipout]
CLASSES = 3
often = partial(settings, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Sequential, Tensor]:
    """A Bayesian classifier, dense or convolutional, and inputs for it."""
    torch.manual_seed(draw(st.integers(0, 2**31)))
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    activation = draw(st.sampled_from(ACTIVATIONS))
    norm, bias, images = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    before = draw(st.integers(1, 4))
    x = torch.randn(12, before, 6, 6) if images else torch.randn(12, before)
    parts: list[nn.Module] = []
    for width in widths:
        parts.append(nn.Conv2d(before, width, 3, padding=1, bias=bias) if images else nn.Linear(before, width, bias))
        if norm:
            parts.append(nn.BatchNorm2d(width) if images else nn.BatchNorm1d(width))
        parts.append(activation())
        before = width
    if images:
        parts += [nn.AvgPool2d(3), nn.Flatten()]
        before *= 4
    model = nn.Sequential(*parts, nn.Linear(before, CLASSES))
    options = {"posterior": draw(st.sampled_from(POSTERIORS)), "prior": draw(st.sampled_from(PRIORS))()}
    bl.bayesianize_(model, **options, estimator=draw(st.sampled_from(ESTIMATORS)))
    return model, x


def check_probabilities(model: nn.Module, x: Tensor) -> None:
    found = bl.predict(model, x, samples=4, seed=0).mean
    assert found.shape == (len(x), CLASSES) and bool(found.isfinite().all())
    assert bool((found >= 0).all()) and torch.allclose(found.sum(1), torch.ones(len(x)), atol=1e-5)


@torch.no_grad()
def mean_output(model: nn.Module, x: Tensor) -> Tensor:
    with bl.using(model, bl.mean_only):
        return model.eval()(x)


AMOUNTS, STRUCTURES = st.sampled_from([0.0, 0.3, 0.7, 0.95]), st.sampled_from(["weight", "output", "input"])


@often(max_examples=12)
@given(networks(), AMOUNTS, STRUCTURES)
def test_from_conversion_to_export(case: tuple[nn.Sequential, Tensor], amount: float, structure: Any) -> None:
    check_life(*case, amount, structure)


@pytest.mark.slow
@often(max_examples=200)
@given(networks(), AMOUNTS, STRUCTURES)
def test_many_from_conversion_to_export(case: tuple[nn.Sequential, Tensor], amount: float, structure: Any) -> None:
    check_life(*case, amount, structure)


def check_life(model: nn.Module, x: Tensor, amount: float, structure: Any) -> None:
    """Convert, train, prune, compact, save and collapse."""
    assert float(bl.kl(model).detach()) >= 0
    y = torch.arange(len(x)) % CLASSES
    history = bl.fit(model, (x, y), likelihood=bl.Categorical(), epochs=1, batch_size=6, seed=0, progress=False)
    assert math.isfinite(history["energy"][-1]) and float(bl.kl(model).detach()) >= 0
    check_probabilities(model, x)
    bl.prune_(model, amount=amount, structure=structure, allow_empty=True)
    assert float(bl.kl(model).detach()) >= 0
    check_probabilities(model, x)
    masked = mean_output(model, x)
    small = bl.compact(copy.deepcopy(model).eval(), x[:2])
    torch.testing.assert_close(mean_output(small, x), masked, rtol=1e-4, atol=1e-5)
    assert bl.footprint(small).weights <= bl.footprint(model).weights
    with TemporaryDirectory() as name:
        bl.save(small, Path(name) / "net")
        assert torch.equal(mean_output(bl.load(Path(name) / "net"), x), mean_output(small, x))
        save_slim(small, Path(name) / "slim")
        slim = load_slim(Path(name) / "slim")
    with torch.no_grad():
        torch.testing.assert_close(slim(x), masked, rtol=0.05, atol=0.05)  # weights in 11 bits, through four layers
    plain = bl.collapse_(copy.deepcopy(small))
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x), masked, rtol=1e-4, atol=1e-5)


def check_onnx(model: nn.Module, x: Tensor, amount: float, structure: Any) -> None:
    """The mean network, pruned and compacted, answers in onnxruntime as in torch; so do the samples it holds."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    bl.prune_(model, amount=amount, structure=structure, allow_empty=True)
    small = bl.compact(model.eval(), x[:2])
    with TemporaryDirectory() as name:
        path = Path(name) / "net.onnx"
        export_onnx(small, path, x[:2])
        (found,) = runtime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"input": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), mean_output(small, x), rtol=1e-4, atol=1e-5)
        export_onnx(small, path, x[:2], samples=3, likelihood=bl.Categorical(), seed=0)
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(["mean"], {"input": x.numpy()})
    with torch.no_grad():
        drawn = [network(x).softmax(1) for network in sample_networks(small, 3, 0)]
    torch.testing.assert_close(torch.from_numpy(found), torch.stack(drawn).mean(0), rtol=1e-4, atol=1e-5)


@often(max_examples=2)
@given(networks(), AMOUNTS, STRUCTURES)
def test_onnx_answers_as_torch(case: tuple[nn.Sequential, Tensor], amount: float, structure: Any) -> None:
    check_onnx(*case, amount, structure)


@pytest.mark.slow
@often(max_examples=60)
@given(networks(), AMOUNTS, STRUCTURES)
def test_onnx_often_answers_as_torch(case: tuple[nn.Sequential, Tensor], amount: float, structure: Any) -> None:
    check_onnx(*case, amount, structure)


SCALES = [1e-30, 1e-15, 1e-4, 1.0, 1e4, 1e15, 1e30]


@each("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("prior", PRIORS)
def test_the_kl_is_a_number_at_every_scale(prior: Any, dtype: torch.dtype) -> None:
    """Means and deviations from 1e-30 to 1e30, means as far as the type holds them: not negative, nowhere NaN.

    `GammaARD` is a maximum over its hyperprior's density, which has no lower bound. Normal tails make the KL infinite
    where the square of a weight exceeds float32.
    """
    tails = prior in (bl.priors.Normal, bl.priors.HeNormal, bl.priors.ScaleMixture)
    for mean, std in itertools.product(SCALES, SCALES):
        model = nn.Sequential(nn.Linear(3, 2, bias=False)).to(dtype)
        with torch.no_grad():
            next(model.parameters()).fill_(min(mean, torch.finfo(dtype).max))
        bl.bayesianize_(model, posterior=partial(bl.posteriors.MeanField, scale=std), prior=prior())
        divergence = bl.kl(model)
        divergence.backward()
        found = float(divergence.detach())
        assert found >= 0 or (prior is bl.priors.GammaARD and math.isfinite(found)), (mean, std, found)
        assert math.isfinite(found) or (tails and max(mean, std) > 1e19 and dtype != torch.float64), (mean, std, found)
        gradients = [parameter.grad for parameter in model.parameters()]
        assert not any(part is None or part.isnan().any() for part in gradients), (mean, std, gradients)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_predictions_are_numbers_at_every_scale(estimator: Any, dtype: torch.dtype) -> None:
    """Inputs from 1e-30 to 1e30, as far as the squares of the type hold them."""
    torch.manual_seed(0)
    model = bl.mlp([3, 5, CLASSES], method="graves").to(dtype)
    largest = math.sqrt(torch.finfo(dtype).max) / 100
    for scale in SCALES:
        x = (torch.randn(6, 3) * min(scale, largest)).to(dtype)
        with bl.using(model, estimator):
            found = bl.predict(model, x, samples=3, seed=0, likelihood=bl.Categorical()).mean.float()
        assert bool(found.isfinite().all()), scale
        torch.testing.assert_close(found.sum(1), torch.ones(6), rtol=0.02, atol=0.02)  # rounding of 8 bits
