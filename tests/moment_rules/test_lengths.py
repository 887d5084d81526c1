"""Vectors divided by their length, normalised images and dropped channels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bayeslim.gaussian import Gaussian
from contracts.members import over
from contracts.statistics import assert_moments
from moment_rules.jacobians import assert_gradients
from moment_rules.monte_carlo import Function, assert_states, certain, deviation_error, moments_of, uncertain

LENGTHS: dict[str, Function] = {
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "normalize": lambda x: F.normalize(x, dim=-1),
}


def features(noise: float, mode: Any) -> Gaussian:
    mean = certain(2, 64)
    return Gaussian(mean, torch.full_like(mean, noise**2), mode)


@over("name", LENGTHS)
@pytest.mark.parametrize(
    ("mode", "noise", "stated"),
    [("exact", 0.1, 0.003), ("exact", 0.3, 0.003), ("taylor", 0.1, 0.015), ("taylor", 0.3, 0.06)],
)
def test_the_error_is_the_stated_one(name: str, mode: Any, noise: float, stated: float) -> None:
    error = deviation_error(LENGTHS[name], features(noise, mode), count=20_000).abs().mean().item()
    draws = (2 / 20_000) ** 0.5 / 2  # what the draws themselves are off
    assert error < stated + draws
    if mode == "taylor":
        assert_states(error, stated + draws)


@over("name", LENGTHS)
def test_small_noise_has_the_variance_of_the_full_jacobian(name: str) -> None:
    mean = certain(2, 5)
    x = Gaussian(mean, 1e-12 * uncertain(2, 5).variance)
    found = moments_of(LENGTHS[name], x)
    jacobian: Any = torch.autograd.functional.jacobian(LENGTHS[name], mean)
    expected = jacobian.reshape(10, 10).square() @ x.variance.flatten()
    torch.testing.assert_close(found.loc, LENGTHS[name](mean))
    torch.testing.assert_close(found.variance.flatten(), expected, rtol=1e-6, atol=0)


@over("name", LENGTHS)
@over("mode", ["exact", "taylor"])
def test_gradients(name: str, mode: Any) -> None:
    assert_gradients(LENGTHS[name], uncertain(2, 4, mode=mode))


def test_weights_axes_and_the_smallest_length() -> None:
    x, layer = uncertain(2, 3, 4), nn.RMSNorm([3, 4], eps=0.5).double()
    layer.weight.data = certain(3, 4)
    plain, found = moments_of(lambda x: F.rms_norm(x, (3, 4), eps=0.5), x), moments_of(layer, x)
    torch.testing.assert_close(found.loc, plain.loc * layer.weight)
    torch.testing.assert_close(found.variance, plain.variance * layer.weight.square())
    sure = Gaussian(x.loc, torch.zeros_like(x.loc), "taylor")
    torch.testing.assert_close(moments_of(layer, sure).loc, layer(x.loc))
    nought: Any = F.normalize(Gaussian(torch.zeros(2, 3), torch.zeros(2, 3)))  # pyright: ignore[reportArgumentType]
    assert not nought.loc.any() and not nought.variance.any()
    both = moments_of(lambda x: F.normalize(x, dim=(1, 2)), sure)  # pyright: ignore[reportArgumentType]
    torch.testing.assert_close(both.loc.square().sum((1, 2)), torch.ones(2).double())
    with pytest.raises(TypeError, match=r"`normalize` with p=1: it takes the Euclidean length"):
        F.normalize(x, p=1)


@over("affine", [True, False])
def test_an_instance_norm_is_a_group_norm_of_single_channels(affine: bool) -> None:
    x, layer = uncertain(2, 3, 4, 4), nn.InstanceNorm2d(3, affine=affine).double()
    if affine:
        layer.weight.data, layer.bias.data = certain(3), certain(3, seed=1)
    found, expected = layer(x), moments_of(lambda x: F.group_norm(x, 3, layer.weight, layer.bias), x)
    torch.testing.assert_close(found.loc, expected.loc)
    torch.testing.assert_close(found.variance, expected.variance)
    sure = Gaussian(x.loc, torch.zeros_like(x.loc))
    torch.testing.assert_close(layer(sure).loc, layer(x.loc))
    assert layer(x[0]).shape == (3, 4, 4)


def test_an_instance_norm_with_running_statistics() -> None:
    x, layer = uncertain(2, 3, 5), nn.InstanceNorm1d(3, track_running_stats=True).double()
    twin = nn.InstanceNorm1d(3, track_running_stats=True).double()
    layer(x)
    twin(x.loc)
    assert layer.running_mean is not None and twin.running_mean is not None
    assert torch.equal(layer.running_mean, twin.running_mean) and layer.running_mean.any()
    found = layer.eval()(x)
    torch.testing.assert_close(found.loc, twin.eval()(x.loc))
    assert layer.running_var is not None
    torch.testing.assert_close(found.variance, x.variance / (layer.running_var[:, None] + 1e-5))


DROPOUTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "dropout1d": (nn.Dropout1d(0.3), (2, 3, 2)),
    "dropout2d": (nn.Dropout2d(0.3), (1, 3, 2, 2)),
    "dropout3d": (nn.Dropout3d(0.3), (1, 2, 1, 2, 2)),
    "alpha": (nn.AlphaDropout(0.3), (2, 3)),
    "feature-alpha": (nn.FeatureAlphaDropout(0.2), (2, 3, 2)),
}


@over("name", DROPOUTS)
def test_dropped_channels_by_draws(name: str) -> None:
    layer, shape = DROPOUTS[name]
    x = uncertain(*shape)
    torch.manual_seed(0)
    many = 50_000
    noisy = x.loc + x.scale * torch.randn(many, *shape).double()
    samples = layer(noisy.flatten(0, 1)).reshape(noisy.shape)
    found = moments_of(layer, x)
    assert_moments(samples, found.loc, found.variance)
    layer.eval()
    assert layer(x) is x
    layer.train()


def test_alpha_dropout_of_everything_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`p` of alpha dropout must lie between 0 and 1, got 1"):
        F.alpha_dropout(uncertain(3), 1.0, training=True)
