"""Spectra, truncation and tying of posterior scales."""

from __future__ import annotations

import copy
import functools
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.analysis import explained_variance, named_spectra, tie_scales_, truncate_scales_
from bayeslim.layers import BayesLayer
from bayeslim.posteriors import KTied, MatrixNormal, MeanField


def network(rank: int | None = None, seed: int = 0, **options: Any) -> nn.Sequential:
    """A convolution and a linear layer with positive scales: of this non-negative rank, or of any."""
    torch.manual_seed(seed)
    posterior = functools.partial(MeanField, **{"scale": 0.1} | options)
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5))
    bl.bayesianize_(model.double(), posterior=posterior, estimator=bl.weight_sample)
    for layer in bayesian(model):
        assert isinstance(layer.weight, MeanField)
        rows, columns = layer.weight.loc.flatten(1).shape
        scale = 0.02 + 0.08 * torch.rand(rows, columns, dtype=torch.float64)
        if rank is not None:
            factors = [0.1 + torch.rand(size, rank, dtype=torch.float64) for size in (rows, columns)]
            scale = 0.05 * factors[0] @ factors[1].T / rank
        layer.weight.set_scale_(scale.view_as(layer.weight.loc))
    return model


def bayesian(model: nn.Module) -> list[BayesLayer]:
    return [module for module in model.modules() if isinstance(module, BayesLayer)]


def scales(model: nn.Module) -> list[np.ndarray]:
    """The standard deviations of the weights, (out, fan_in)."""
    return [layer.weight.variance().sqrt().flatten(1).detach().numpy() for layer in bayesian(model)]


def cut(scale: np.ndarray, rank: int, floor: float) -> np.ndarray:
    left, values, right = np.linalg.svd(scale, full_matrices=False)
    values[rank:] = 0.0
    return np.maximum(left @ np.diag(values) @ right, floor)


@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (1, 4)])
def test_explained_variance_is_that_of_numpy(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).normal(size=shape)
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    found = explained_variance(torch.from_numpy(matrix))
    np.testing.assert_allclose(found, squares / squares.sum(), rtol=1e-12)
    assert found.sum().item() == pytest.approx(1.0)


def test_nearly_constant_matrices_look_like_rank_one() -> None:
    """A constant with 10 % noise: 1 / (1 + 0.01) of the squares, and a little of the noise."""
    noise = torch.randn(300, 200, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first = explained_variance(1 + 0.1 * noise)[0].item()
    assert first == pytest.approx(1 / 1.01, abs=2e-3)
    assert explained_variance(torch.ones(4, 3))[0].item() == pytest.approx(1.0)


def test_spectra_of_every_layer() -> None:
    model = network(rank=2)
    spectra = named_spectra(model)
    assert list(spectra) == ["0", "3"]
    for layer, spectrum in zip(bayesian(model), spectra.values(), strict=True):
        mean = layer.weight.mean().flatten(1)
        torch.testing.assert_close(spectrum.mean, explained_variance(mean))
        assert spectrum.mean.shape == (min(mean.shape),)
        assert spectrum.scale[:2].sum().item() == pytest.approx(1.0)
        assert spectrum.scale[2:].max().item() < 1e-25
        assert spectrum.mean[2:].sum().item() > 0.1
        assert not spectrum.mean.requires_grad
    with torch.no_grad():
        assert named_spectra(nn.Sequential(nn.Linear(2, 2))) == {}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("floor", [1e-6, 0.0, 0.05])
def test_truncation_is_that_of_numpy(rank: int, floor: float) -> None:
    model = network()
    before, means = scales(model), [layer.weight.mean().clone() for layer in bayesian(model)]
    truncate_scales_(model, rank, floor)
    for found, scale in zip(scales(model), before, strict=True):
        np.testing.assert_allclose(found, cut(scale, rank, floor), rtol=1e-9)
        assert found.min() >= floor * (1 - 1e-9)
    assert all(torch.equal(layer.weight.mean(), mean) for layer, mean in zip(bayesian(model), means, strict=True))


def test_a_floor_of_zero_gives_exact_zeros() -> None:
    """Scales over several orders of magnitude have a rank-2 part that is negative somewhere."""
    model = network()
    layer = bayesian(model)[1]
    cast(MeanField, layer.weight).set_scale_(0.01 * torch.randn(5, 24, dtype=torch.float64).mul(2).exp())
    before = scales(model)[1]
    assert (cut(before, 2, -1.0) < 0).any()
    truncate_scales_(model, 2, floor=0.0)
    found = scales(model)[1]
    assert ((found == 0) == (cut(before, 2, -1.0) <= 0)).all() and (found == 0).any()
    weight = layer.weight.rsample()
    certain = layer.weight.variance() == 0
    assert torch.equal(weight[certain], layer.weight.mean()[certain])
    truncate_scales_(model, 2, floor=1e-6)
    assert scales(model)[1].min() == pytest.approx(1e-6)
    assert bl.kl(model).isfinite()


@pytest.mark.parametrize("rank", [6, 18, 100])
def test_a_full_rank_changes_nothing(rank: int) -> None:
    model = network()
    before = scales(model)
    truncate_scales_(model, rank)
    for found, scale in zip(scales(model), before, strict=True):
        np.testing.assert_allclose(found, scale, rtol=1e-9)


def test_bounded_posteriors_stay_below_their_bound() -> None:
    """Most scales at the bound and some tiny: the best rank-1 matrix overshoots."""
    bound = 0.05
    model = network(scale=0.04, max_scale=bound)
    torch.manual_seed(2)
    for layer in bayesian(model):
        values = torch.where(torch.rand_like(layer.weight.mean()) < 0.7, 0.999 * bound, 0.001)
        cast(MeanField, layer.weight).set_scale_(values)
    before = scales(model)
    assert max(cut(scale, 1, 0.0).max() for scale in before) > bound
    truncate_scales_(model, 1)
    for found, scale in zip(scales(model), before, strict=True):
        np.testing.assert_allclose(found, cut(scale, 1, 1e-6).clip(max=bound), rtol=1e-5)
        assert found.max() < bound


@pytest.mark.parametrize("k", [1, 2, 3])
def test_scales_of_a_low_rank_are_tied_exactly(k: int) -> None:
    model = network(rank=k)
    before, means = scales(model), [layer.weight.mean().clone() for layer in bayesian(model)]
    tie_scales_(model, k, iterations=20_000 if k > 1 else 200)
    for layer, scale, mean in zip(bayesian(model), before, means, strict=True):
        assert isinstance(layer.weight, KTied) and layer.weight.k == k
        assert torch.equal(layer.weight.mean(), mean)
        found = layer.weight.scale().flatten(1).detach().numpy()
        # Multiplicative updates converge slowly for k > 1.
        np.testing.assert_allclose(found, scale, rtol=1e-9 if k == 1 else 2e-3)


def test_one_term_is_the_best_of_rank_one() -> None:
    """For k = 1 the non-negative factorisation is the truncated singular value decomposition."""
    model = network()
    before = scales(model)
    tie_scales_(model, 1)
    for found, scale in zip(scales(model), before, strict=True):
        np.testing.assert_allclose(found, cut(scale, 1, 0.0), rtol=1e-6)


def test_more_terms_fit_better_and_layers_too_small_take_what_they_can() -> None:
    errors: list[float] = []
    for k in (1, 2, 3, 5, 7):
        model = network()
        before = scales(model)
        tie_scales_(model, k)
        errors.append(sum(float(((a - b) ** 2).sum()) for a, b in zip(scales(model), before, strict=True)))
        assert [cast(KTied, layer.weight).k for layer in bayesian(model)] == [min(k, 6), min(k, 5)]
    assert errors == sorted(errors, reverse=True)
    # No factorisation beats the singular value decomposition.
    for k, error in zip((1, 2, 3), errors, strict=False):
        best = sum(float(((cut(scale, k, -1.0) - scale) ** 2).sum()) for scale in scales(network()))
        assert best * (1 - 1e-9) <= error <= 1.5 * best


def test_predictions_barely_change() -> None:
    """Moments over 20 000 networks: scales of rank 2 tied with k = 2, beside untouched ones."""
    model = network(rank=2)
    x = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    options: dict[str, Any] = {"likelihood": bl.likelihoods.Gaussian(), "samples": 20_000, "keep_samples": False}
    before = bl.predict(model, x, seed=0, **options)
    tie_scales_(model, 2, iterations=2000)
    after = bl.predict(model, x, seed=0, **options)  # the same noise, so there is no sampling error
    torch.testing.assert_close(after.mean, before.mean, rtol=0, atol=2e-3)
    torch.testing.assert_close(after.epistemic, before.epistemic, rtol=0.02, atol=0)
    assert bool((before.epistemic > 1e-4).all())


def tied_network() -> nn.Sequential:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 7))
    model[1].weight = model[0].weight
    bl.bayesianize_(model.double())
    weight = cast(Any, model)[0].weight
    weight.set_scale_(0.01 * torch.randn(7, 5, dtype=torch.float64).mul(2).exp())
    return model


def test_a_posterior_that_layers_share_stays_one() -> None:
    """A second truncation would see scales that the first one has clipped."""
    model = tied_network()
    scale = scales(model)[0]
    once = cut(scale, 3, 1e-6)
    assert not np.allclose(cut(once, 3, 1e-6), once, atol=1e-4)
    truncate_scales_(model, 3)
    np.testing.assert_allclose(scales(model)[0], once, rtol=1e-9)
    tie_scales_(model, 1)
    assert cast(Any, model)[0].weight is cast(Any, model)[1].weight
    np.testing.assert_allclose(scales(model)[1], cut(once, 1, 0.0), rtol=1e-6)


def test_tied_posteriors_train_and_stay_frozen_where_they_were() -> None:
    model = network()
    first, second = bayesian(model)
    cast(MeanField, first.weight).log_scale.requires_grad_(False)
    model.eval()
    tie_scales_(model, 2)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {"0.weight.log_in", "0.weight.log_out"}
    assert not second.weight.training
    x = torch.randn(2, 2, 4, 4, dtype=torch.float64)
    (model(x).square().sum() + bl.kl(model)).backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in second.parameters())


def test_vanishing_scales_can_be_tied() -> None:
    """Zeros have no logarithm; the factors stay finite."""
    model = network()
    truncate_scales_(model, 1, floor=0.0)
    layer = bayesian(model)[1]
    values = layer.weight.variance().sqrt().detach()
    values[0] = 0.0
    cast(MeanField, layer.weight).set_scale_(values)
    tie_scales_(model, 2)
    weight = cast(KTied, layer.weight)
    assert bool(weight.log_in.isfinite().all() and weight.log_out.isfinite().all())
    assert weight.variance()[0].max().item() < 1e-20


def test_other_posteriors_and_bad_arguments() -> None:
    model = network()
    for rank in (0, -1):
        with pytest.raises(ValueError, match=rf"`rank` must be a positive integer, got {rank}"):
            truncate_scales_(model, rank)
        with pytest.raises(ValueError, match=rf"`k` must be a positive integer, got {rank}"):
            tie_scales_(copy.deepcopy(model), rank)
    for floor in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="`floor` must be finite and not negative"):
            truncate_scales_(model, 1, floor)
    other = bl.bayesianize_(nn.Linear(3, 3), posterior=MatrixNormal)
    for change in (truncate_scales_, tie_scales_):
        with pytest.raises(ValueError, match="`model` has no layer with a MeanField posterior"):
            change(other, 1)
    mixed = nn.Sequential(other, bl.bayesianize_(nn.Linear(3, 3)))
    truncate_scales_(mixed, 1)
    assert isinstance(cast(Any, mixed)[0].weight, MatrixNormal)


def test_biases_are_left_alone() -> None:
    model = cast(Any, bl.bayesianize_(nn.Linear(4, 3), bias_posterior=functools.partial(MeanField, scale=0.3)))
    truncate_scales_(model, 1)
    tie_scales_(model, 1)
    torch.testing.assert_close(model.bias.variance(), torch.full((3,), 0.09))
    assert isinstance(model.bias, MeanField) and isinstance(model.bias.loc, Tensor)
