"""Estimators in detail; what all of them promise is in contracts/."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from bayeslim import kernels
from bayeslim.estimators import (
    VARIANCE_FLOOR,
    check_estimator,
    clipped_reparam,
    flipout,
    independent_draws,
    local_reparam,
    moments,
    weight_sample,
)
from bayeslim.gaussian import Gaussian
from bayeslim.layers import Linear
from bayeslim.ops import EmbeddingOp, LinearOp
from bayeslim.posteriors import MatrixNormal, MeanField
from contracts.dense import FixedNoise
from contracts.members import FACTORISED, POSTERIORS, SAMPLERS, over


@over("name", POSTERIORS)
def test_only_flipout_is_refused_and_only_for_correlated_posteriors(name: str) -> None:
    posterior = POSTERIORS[name](torch.ones(4, 4))
    for estimator in SAMPLERS.values():
        if estimator is flipout and name not in FACTORISED:
            with pytest.raises(TypeError, match=r"random signs would destroy its correlations"):
                check_estimator(estimator, posterior, LinearOp())
        else:
            check_estimator(estimator, posterior, LinearOp())


def test_flipout_is_refused_for_indices() -> None:
    message = r"flipout needs inputs with a sign, EmbeddingOp takes indices: use weight_sample or local_reparam"
    with pytest.raises(TypeError, match=message):
        check_estimator(flipout, MeanField(torch.ones(4, 4)), EmbeddingOp())


def test_flipout_gives_examples_different_signs_of_one_draw() -> None:
    """Equal examples differ, but only by the signs: with one input, `|y - mean|` is the same."""
    posterior = MeanField(torch.ones(3, 1), scale=0.5)
    torch.manual_seed(0)
    deviation = flipout(posterior, LinearOp(), torch.ones(64, 1), None) - 1
    torch.testing.assert_close(deviation.abs(), deviation.abs()[:1].expand(64, 3))
    assert bool((deviation.sign().sum(0).abs() < 64).all())


def test_flipout_flips_inputs_and_outputs() -> None:
    """Tokens share their signs, so unit inputs show the whole pattern `s r^T`, a matrix of rank one."""
    posterior = MeanField(torch.zeros(3, 4), scale=1.0)
    rows, columns = set(), set()
    for seed in range(20):
        torch.manual_seed(seed)
        with FixedNoise(torch.ones(12)):
            pattern = flipout(posterior, LinearOp(), torch.eye(4)[None], None)[0].T
        assert torch.linalg.matrix_rank(pattern).item() == 1
        rows.add(tuple((pattern[0] / pattern[0, 0]).tolist()))
        columns.add(tuple((pattern[:, 0] / pattern[0, 0]).tolist()))
    assert len(rows) > 4  # of 8 patterns over inputs
    assert len(columns) == 4  # all patterns over outputs


def test_weight_sample_gives_equal_examples_equal_outputs() -> None:
    posterior = MeanField(torch.ones(3, 2), scale=0.5)
    torch.manual_seed(1)
    output = weight_sample(posterior, LinearOp(), torch.ones(5, 2), None)
    assert torch.equal(output, output[:1].expand(5, 3))


def test_local_noise_has_a_floor() -> None:
    posterior = MeanField(torch.zeros(3, 2), scale=1e-20)
    torch.manual_seed(2)
    output = local_reparam(posterior, LinearOp(), torch.ones(5, 2), None)
    assert bool((output.abs() < 6 * VARIANCE_FLOOR**0.5).all())


def test_moments_of_two_layers_are_chained() -> None:
    first, second = Linear(3, 4, estimator=moments), Linear(4, 2, estimator=moments)
    output = second(first(torch.ones(5, 3)))
    assert isinstance(output, Gaussian)
    assert output.shape == (5, 2)
    inner = first(torch.ones(5, 3))
    w, v = second.weight.mean(), second.weight.variance()
    expected = inner.loc.square() @ v.T + inner.variance @ (w.square() + v).T
    torch.testing.assert_close(output.variance, expected)


def test_a_drawn_weight_passes_on_the_noise_of_its_input() -> None:
    layer, x = Linear(3, 2, estimator=weight_sample), torch.eye(3)
    torch.manual_seed(0)
    certain = layer(x)
    torch.manual_seed(0)
    output: Any = layer(Gaussian(x, torch.full((3, 3), 0.5)))
    assert torch.equal(output.loc, certain)
    weight = certain - layer.bias  # the rows of the identity pick its columns
    torch.testing.assert_close(output.variance, 0.5 * weight.square().sum(0).expand(3, 2))


def test_local_reparameterisation_refuses_a_gaussian_input() -> None:
    for estimator in (local_reparam, clipped_reparam):
        with pytest.raises(TypeError, match=r"outputs of an uncertain input .* draw weights \(bl\.weight_sample\)"):
            Linear(3, 2, estimator=estimator)(Gaussian(torch.zeros(1, 3), torch.ones(1, 3)))


def test_float16_autocast_keeps_small_variances() -> None:
    """Scale 1e-4: the squares of the scales are below the smallest float16."""
    layer = Linear(256, 1, bias=False, posterior=lambda w: MeanField(torch.zeros_like(w), scale=1e-4))
    torch.manual_seed(3)
    count = 20_000
    x = torch.ones(count, 256)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        variance = layer(x).double().square().mean().item()
    expected = 256e-8
    assert variance == pytest.approx(expected, rel=5 * (2 / count) ** 0.5 + 2e-3)  # + rounding to float16


def test_independent_draws_keep_the_correlation_between_outputs() -> None:
    """Rows of a matrix normal move together: of two outputs with correlation 0.8 drawn apart none would be left."""
    posterior = MatrixNormal(torch.zeros(2, 3, dtype=torch.float64), scale=1.0)
    with torch.no_grad():  # the covariance of the outputs is [[1, 0.8], [0.8, 1]]
        posterior.out_factor.copy_(torch.tensor([[0.0, 0.0], [0.8, math.log(0.6)]]))
    x = torch.ones(1, 3, dtype=torch.float64)
    torch.manual_seed(0)
    draws = torch.cat([independent_draws(posterior, LinearOp(), x, None) for _ in range(4000)])
    correlation = torch.corrcoef(draws.detach().T)[0, 1]
    assert abs(correlation - 0.8) < 5 * (1 - 0.8**2) / math.sqrt(4000)


@pytest.mark.parametrize("noise", [0.0, 1.0, -2.0])
def test_clipped_draws_leave_dead_means_out(monkeypatch: pytest.MonkeyPatch, noise: float) -> None:
    """Every weight by hand: ln alpha of -2, 2.9, 3.1 and 20 (whose variance is that of 8)."""
    monkeypatch.setattr(kernels, "normal_like", lambda tensor: torch.full_like(tensor, noise))
    log_alpha, means = torch.tensor([-2.0, 2.9, 3.1, 20.0]), torch.tensor([0.5, -0.3, 0.2, 0.1])
    variances = log_alpha.exp() * means.square()
    posterior = MeanField(means[None], scale=variances.sqrt()[None])
    x = torch.randn(5, 4)
    found = clipped_reparam(posterior, LinearOp(), x, torch.tensor([0.7]))
    for row, output in zip(x, found[:, 0], strict=True):
        mean = 0.7 + row[0] * 0.5 - row[1] * 0.3
        capped = [*variances[:3].tolist(), math.exp(8) * 0.01]
        variance = sum(row[k] ** 2 * capped[k] for k in range(4))
        torch.testing.assert_close(output, mean + noise * variance**0.5)


def test_clipping_needs_a_variance_of_every_weight() -> None:
    with pytest.raises(TypeError, match=r"clipped_reparam needs a factorised posterior, got MatrixNormal"):
        Linear(4, 3, posterior=MatrixNormal, estimator=clipped_reparam)


def test_clipping_counts_an_uncertain_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "normal_like", torch.ones_like)
    posterior, bias = MeanField(torch.ones(1, 1), scale=0.3), MeanField(torch.ones(1), scale=0.4)
    torch.testing.assert_close(clipped_reparam(posterior, LinearOp(), torch.ones(1, 1), bias), torch.full((1, 1), 2.5))


def test_clipping_changes_nothing_about_weights_that_stay() -> None:
    posterior, x = MeanField(torch.randn(3, 4) + 5, scale=0.1), torch.randn(6, 4)
    with FixedNoise(torch.linspace(-1, 1, 18)):
        whole = local_reparam(posterior, LinearOp(), x, None)
    with FixedNoise(torch.linspace(-1, 1, 18)):
        torch.testing.assert_close(clipped_reparam(posterior, LinearOp(), x, None), whole)
