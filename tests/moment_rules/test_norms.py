"""Normalisation and dropout: exact where it is said to be, within the stated error elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.gaussian import Gaussian, Mode
from contracts.members import over
from contracts.statistics import assert_mean, assert_moments
from moment_rules.monte_carlo import (
    Function,
    assert_exact,
    assert_states,
    certain,
    deviation_error,
    moments_of,
    sampled,
    uncertain,
)


def spread_out(*shape: int, noise: float, mode: Mode = "exact", dim: int = -1, seed: int = 0) -> Gaussian:
    """Means of mean 0 and variance 1 along `dim`, all with the deviation `noise`."""
    mean = certain(*shape, seed=seed)
    mean = (mean - mean.mean(dim, keepdim=True)) / mean.std(dim, correction=0, keepdim=True)
    return Gaussian(mean, torch.full_like(mean, noise**2), mode)


def norm(kind: Function, *args: Any, **options: Any) -> Any:
    """A float64 layer, nothing about it at its initial value."""
    torch.manual_seed(0)
    layer = kind(*args, **options).double()
    for tensor in (*layer.parameters(), *layer.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(0.5, 2.0)
    return layer


@pytest.mark.parametrize(
    ("kind", "shape"), [(nn.BatchNorm1d, (2, 3)), (nn.BatchNorm1d, (2, 3, 2)), (nn.BatchNorm2d, (1, 3, 2, 2))]
)
@over("affine", [True, False])
def test_batch_norm_in_evaluation_is_exact(kind: Function, shape: tuple[int, ...], affine: bool) -> None:
    assert_exact(norm(kind, 3, affine=affine).eval(), uncertain(*shape))


def test_batch_norm_in_training_uses_and_moves_the_statistics_of_the_means() -> None:
    layer, twin = norm(nn.BatchNorm2d, 3), norm(nn.BatchNorm2d, 3)
    x = uncertain(2, 3, 2, 2)
    found = layer(x)
    torch.testing.assert_close(found.loc, twin(x.loc))
    torch.testing.assert_close(layer.running_mean, twin.running_mean)
    torch.testing.assert_close(layer.running_var, twin.running_var)
    gain = layer.weight.square() / (x.loc.var((0, 2, 3), correction=0) + layer.eps)
    torch.testing.assert_close(found.variance, x.variance * gain[:, None, None])


@pytest.mark.parametrize(("noise", "stated"), [(0.1, 0.025), (0.3, 0.06), (1.0, 0.45)])
def test_batch_norm_in_training_is_as_far_off_as_stated(noise: float, stated: float) -> None:
    x = spread_out(64, 4, noise=noise, dim=0)
    error = deviation_error(lambda x: F.batch_norm(x, None, None, training=True), x, count=20_000)
    assert_states(error.mean().item(), stated)


def test_batch_norm_in_training_needs_two_values() -> None:
    x: Any = uncertain(1, 3)
    with pytest.raises(ValueError, match=r"more than one value per channel, got .*\(1, 3\): use a larger batch, or"):
        nn.BatchNorm1d(3).double()(x)
    with pytest.raises(ValueError, match="more than one value"):
        nn.BatchNorm1d(3, track_running_stats=False).double().eval()(x)
    assert nn.BatchNorm1d(3).double().eval()(x).shape == (1, 3)


@pytest.mark.parametrize(
    ("mode", "noise", "stated"),
    [("exact", 0.1, 0.003), ("exact", 0.3, 0.003), ("taylor", 0.1, 0.025), ("taylor", 0.3, 0.07)],
)
def test_layer_norm_is_as_far_off_as_stated(mode: Mode, noise: float, stated: float) -> None:
    x = spread_out(2, 64, noise=noise, mode=mode)
    assert_states(deviation_error(nn.LayerNorm(64).double(), x).abs().mean().item(), stated)


@over("kind", ["layer", "group"])
@over("features", [2, 3, 4])
def test_means_are_scaled_by_the_expected_variance_of_few_features(kind: str, features: int) -> None:
    """`s^2 = Var_j m_j + (1 - 1/d) mean_j v_j + eps`: the own mean of d numbers takes up one d-th of their noise."""
    x, eps = uncertain(1, features), 1e-5
    function = (lambda x: F.layer_norm(x, (features,), eps=eps)) if kind == "layer" else lambda x: F.group_norm(x, 1)
    centred = x.loc - x.loc.mean()
    squares = (centred / moments_of(function, x).loc).square() - eps
    assert_mean(sampled(lambda x: x.var(-1, correction=0, keepdim=True).expand_as(x), x), squares)


def full_jacobian(function: Function, x: Gaussian) -> Tensor:
    """`sum_j (df_i / dx_j)^2 v_j` at the means."""
    jacobian: Any = torch.autograd.functional.jacobian(function, x.loc)
    size = x.numel()
    return (jacobian.reshape(size, size).square() @ x.variance.flatten()).reshape(x.shape)


NORMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "layer": (lambda: norm(nn.LayerNorm, 5), (2, 3, 5)),
    "layer-two-axes": (lambda: norm(nn.LayerNorm, (3, 5)), (2, 3, 5)),
    "layer-plain": (lambda: norm(nn.LayerNorm, 5, elementwise_affine=False), (2, 5)),
    "layer-no-bias": (lambda: norm(nn.LayerNorm, 5, bias=False), (2, 5)),
    "group": (lambda: norm(nn.GroupNorm, 2, 4), (2, 4, 3)),
    "group-image": (lambda: norm(nn.GroupNorm, 2, 4), (2, 4, 2, 2)),
    "group-plain": (lambda: norm(nn.GroupNorm, 1, 4, affine=False), (2, 4)),
}


@over("name", NORMS)
def test_small_noise_is_mapped_by_the_full_jacobian(name: str) -> None:
    """In the limit of no noise, where mode "exact" is first order: the relative error falls with the variance."""
    build, shape = NORMS[name]
    layer = build()
    errors = []
    for scale in (1e-2, 1e-3):
        x = uncertain(*shape, scale=scale)
        found = moments_of(layer, x)
        errors.append((found.variance / full_jacobian(layer, x) - 1).abs().max().item())
        torch.testing.assert_close(found.loc, layer(x.loc), rtol=0, atol=10 * scale**2)
    assert errors[1] < 0.02 * errors[0] < 0.02


@over("name", NORMS)
def test_first_order_norms_are_the_papers(name: str) -> None:
    """`(g / s)^2 v`: as the derivative with the statistics held fixed."""
    build, shape = NORMS[name]
    layer, x = build(), uncertain(*shape, mode="taylor")
    found = moments_of(layer, x)
    torch.testing.assert_close(found.loc, layer(x.loc))
    # The map is affine in x once its statistics are fixed: two inputs with those statistics give its slope.
    groups = (
        (len(x), layer.num_groups, -1) if name.startswith("group") else (*shape[: -len(layer.normalized_shape)], -1)
    )
    s = (x.loc.reshape(groups).var(-1, correction=0, keepdim=True) + layer.eps).sqrt()
    s = s.expand_as(x.loc.reshape(groups)).reshape(shape)
    gain = torch.ones(()).double() if layer.weight is None else layer.weight
    gain = gain.reshape(-1, *[1] * (len(shape) - 2)) if name.startswith("group") and gain.ndim else gain
    torch.testing.assert_close(found.variance, (gain / s).square() * x.variance)


def test_group_norm_is_layer_norm_over_groups() -> None:
    x = uncertain(2, 4, 3)
    found = moments_of(lambda x: F.group_norm(x, 2), x)
    expected = moments_of(lambda x: F.layer_norm(x.reshape(2, 2, 6), (6,)).reshape(2, 4, 3), x)
    torch.testing.assert_close(found.loc, expected.loc)
    torch.testing.assert_close(found.variance, expected.variance)
    x = spread_out(2, 64, noise=0.3)
    assert_states(deviation_error(lambda x: F.group_norm(x, 1), x).abs().mean().item(), 0.003)


@over("kind", [nn.LayerNorm, nn.GroupNorm])
def test_a_constant_input_stays_finite(kind: Any) -> None:
    layer = kind(4) if kind is nn.LayerNorm else kind(2, 4)
    for variance in (0.0, 1.0):
        found = layer(Gaussian(torch.full((2, 4), 3.0), torch.full((2, 4), variance)))
        assert bool(found.loc.isfinite().all()) and bool(found.variance.isfinite().all())


def test_dropout_is_exact() -> None:
    x = uncertain(2, 3)
    for p in (0.2, 0.7):
        assert_exact(lambda x, p=p: F.dropout(x, p), x)
    everything = moments_of(lambda x: F.dropout(x, 1.0), x)
    assert not everything.loc.any() and not everything.variance.any()
    assert F.dropout(x, 0.3, training=False) is x
    assert nn.Dropout(0.3).eval()(x) is x


def test_dropout_of_a_certain_value_has_its_own_variance() -> None:
    x = Gaussian(certain(3), torch.zeros(3).double(), "taylor")
    found = moments_of(lambda x: F.dropout(x, 0.25), x)
    assert found.mode == "taylor"
    assert_moments(sampled(lambda x: F.dropout(x, 0.25), x.loc), found.loc, found.variance)


@over("mode", ["exact", "taylor"])
def test_the_mode_travels(mode: Mode) -> None:
    x: Any = uncertain(2, 4, mode=mode)
    results: list[Any] = [
        nn.LayerNorm(4).double()(x),
        nn.BatchNorm1d(4).double()(x),
        nn.GroupNorm(2, 4).double()(x),
        F.dropout(x, 0.5),
        F.dropout(x, 1.0),
    ]
    assert all(result.mode == mode for result in results)
