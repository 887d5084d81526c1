"""The factorised Gaussian."""

from __future__ import annotations

import math

import pytest
import torch

from bayeslim import layers
from bayeslim.posteriors import MeanField, fan_in_mean_field
from contracts.members import over


def test_default_log_variance_is_minus_ten() -> None:
    variance = MeanField(torch.zeros(2, 3)).variance()
    torch.testing.assert_close(variance.log(), torch.full((2, 3), -10.0))


def test_scale_is_a_standard_deviation() -> None:
    torch.testing.assert_close(MeanField(torch.zeros(2), scale=0.1).variance(), torch.full((2,), 0.01))


@over("max_scale", [math.inf, 0.5])
def test_a_scale_per_weight(max_scale: float) -> None:
    scale = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    posterior = MeanField(torch.zeros(2, 2, dtype=torch.float64), scale=scale, max_scale=max_scale)
    torch.testing.assert_close(posterior.variance().sqrt(), scale)
    scale[0, 0] = 0.0
    posterior.set_scale_(scale)
    torch.testing.assert_close(posterior.variance().sqrt(), scale)
    assert posterior.variance()[0, 0].item() == 0
    assert torch.equal(posterior.rsample()[0, :1], torch.zeros(1))
    posterior.set_scale_(0.0)
    assert torch.equal(posterior.variance(), torch.zeros_like(scale))


@over("raw", [0.0, 5.0, 50.0])
def test_the_bound_holds_whatever_the_parameter(raw: float) -> None:
    posterior = MeanField(torch.zeros(3, dtype=torch.float64), scale=0.01, max_scale=math.exp(-4))
    with torch.no_grad():
        posterior.log_scale.fill_(raw)
    assert bool((posterior.variance() <= math.exp(-8)).all())
    torch.testing.assert_close(posterior.variance(), torch.full((3,), math.exp(-8)).double(), rtol=0.04, atol=0)


def test_a_scale_at_its_bound_can_come_back() -> None:
    posterior = MeanField(torch.zeros(3), scale=0.01, max_scale=math.exp(-4))
    with torch.no_grad():
        posterior.log_scale.fill_(2.0)
    posterior.variance().log().sum().backward()
    assert posterior.log_scale.grad is not None
    assert bool((posterior.log_scale.grad > 1e-3).all())


@over("max_scale", [0.005, 0.5])
def test_a_bound_on_either_side_of_the_default_scale_is_rebuilt(max_scale: float) -> None:
    posterior = MeanField(torch.zeros(2, 2), scale=0.001, max_scale=max_scale)
    twin = MeanField(torch.zeros(2, 2), **posterior.config())  # pyright: ignore[reportArgumentType]
    twin.load_state_dict(posterior.state_dict())
    assert torch.equal(twin.variance(), posterior.variance())


@pytest.mark.parametrize(
    ("options", "value"),
    [({"scale": 0.0}, "0.0"), ({"scale": -1.0}, "-1.0"), ({"scale": math.nan}, "nan")],
)
def test_scales_that_are_not_positive_are_refused(options: dict[str, float], value: str) -> None:
    with pytest.raises(ValueError, match=rf"`scale` must be positive and below `max_scale`=inf, got {value}"):
        MeanField(torch.zeros(2), **options)


def test_a_scale_above_its_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"below `max_scale`=0\.1, got 0\.2: pass e\.g\. 0\.01"):
        MeanField(torch.zeros(2), scale=0.2, max_scale=0.1)


@pytest.mark.parametrize(("shape", "fan_in"), [((300, 784), 784), ((4, 3, 5, 5), 75), ((4, 1, 3), 3), ((7,), 1)])
def test_the_fan_in_sets_the_scale(shape: tuple[int, ...], fan_in: int) -> None:
    posterior = fan_in_mean_field(torch.zeros(shape, dtype=torch.float64), ratio=0.2)
    assert type(posterior) is MeanField
    torch.testing.assert_close(posterior.variance(), torch.full(shape, 0.04 * 2 / fan_in, dtype=torch.float64))


@over("width", [20, 500])
def test_noise_is_the_same_share_of_the_signal_at_every_width(width: int) -> None:
    """`Var[W x] / |E[W]|^2 |x|^2 = ratio^2` for He's means, whatever the fan-in."""
    torch.manual_seed(0)
    means = torch.randn(2000, width, dtype=torch.float64) * math.sqrt(2 / width)
    posterior = fan_in_mean_field(means, ratio=0.3)
    x = torch.randn(width, dtype=torch.float64)
    share = (posterior.variance() @ x.square()).mean() / (means @ x).square().mean()
    assert share.item() == pytest.approx(0.09, rel=5 * math.sqrt(2 / 2000))


def test_options_of_a_fan_in_posterior() -> None:
    torch.testing.assert_close(fan_in_mean_field(torch.zeros(2, 8), scale=0.3).variance(), torch.full((2, 8), 0.09))
    assert fan_in_mean_field(torch.zeros(2, 8), max_scale=0.2).config()["max_scale"] == pytest.approx(0.2)
    layer = layers.Linear(8, 2, posterior=fan_in_mean_field, bias_posterior=fan_in_mean_field)
    torch.testing.assert_close(layer.weight.variance(), torch.full((2, 8), 0.01 * 2 / 8))
    for ratio in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match=rf"`ratio` must be positive, got {ratio}: pass e\.g\. 0\.1"):
            fan_in_mean_field(torch.zeros(2, 8), ratio=ratio)


def test_the_kl_to_a_standard_normal_is_the_papers_with_its_constant() -> None:
    """VDP++ eq. 12 for elementwise variances: `0.5 sum(v + mu^2 - 1 - ln v)`."""
    torch.manual_seed(0)
    layer = layers.Conv2d(3, 4, 2, posterior=fan_in_mean_field).double()
    with torch.no_grad():
        layer.weight.get_parameter("log_scale").add_(torch.randn(4, 3, 2, 2))
    v, mu = layer.weight.variance(), layer.weight.mean()
    torch.testing.assert_close(layer.kl(), 0.5 * (v + mu.square() - 1 - v.log()).sum())
