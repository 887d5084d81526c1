"""Resized images: every mode is a linear map, whose derivatives torch gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayeslim as bl
from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, sampled, uncertain

LINE, IMAGE, VOLUME = uncertain(2, 2, 5), uncertain(1, 2, 4, 3, seed=1), uncertain(1, 1, 3, 2, 4, seed=2)

CASES: dict[str, tuple[dict[str, Any], Gaussian]] = {
    "nearest": ({"scale_factor": 2}, IMAGE),
    "nearest-smaller": ({"size": (3, 2)}, IMAGE),
    "nearest-1d": ({"size": 7}, LINE),
    "nearest-3d": ({"size": (5, 3, 2)}, VOLUME),
    "nearest-exact": ({"scale_factor": (1.6, 0.7), "mode": "nearest-exact"}, IMAGE),
    "linear": ({"scale_factor": 2, "mode": "linear"}, LINE),
    "linear-corners": ({"size": 8, "mode": "linear", "align_corners": True}, LINE),
    "bilinear": ({"scale_factor": 2, "mode": "bilinear"}, IMAGE),
    "bilinear-corners": ({"scale_factor": 2, "mode": "bilinear", "align_corners": True}, IMAGE),
    "bilinear-factors": ({"scale_factor": (1.7, 0.6), "mode": "bilinear"}, IMAGE),
    "bilinear-recomputed": ({"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}, IMAGE),
    "bilinear-antialias": ({"size": (2, 2), "mode": "bilinear", "antialias": True}, IMAGE),
    "bicubic": ({"size": (7, 5), "mode": "bicubic"}, IMAGE),
    "bicubic-corners": ({"scale_factor": 2, "mode": "bicubic", "align_corners": True}, IMAGE),
    "bicubic-antialias": ({"scale_factor": (0.6, 0.7), "mode": "bicubic", "antialias": True}, IMAGE),
    "trilinear": ({"size": (4, 4, 3), "mode": "trilinear"}, VOLUME),
    "trilinear-corners": ({"scale_factor": 2, "mode": "trilinear", "align_corners": True}, VOLUME),
    "area": ({"size": (3, 2), "mode": "area"}, IMAGE),
    "area-factor": ({"scale_factor": 0.6, "mode": "area"}, LINE),
}


@each("name", CASES)
@each("mode", ["exact", "taylor"])
def test_every_mode_is_its_linear_map(name: str, mode: Any) -> None:
    options, x = CASES[name]
    assert_first_order(lambda x: F.interpolate(x, **options), Gaussian(x.loc, x.variance, mode))


@over("name", ["nearest", "bilinear", "bicubic-corners", "area"])
def test_gradients(name: str) -> None:
    options, x = CASES[name]
    assert_gradients(lambda x: F.interpolate(x, **options), x)


def test_bicubic_by_monte_carlo() -> None:
    """Its weights are of both signs."""
    assert_exact(lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), IMAGE)


@pytest.mark.parametrize(
    "module",
    [
        nn.Upsample(scale_factor=2),
        nn.Upsample((5, 6), mode="bilinear", align_corners=True),
        nn.UpsamplingNearest2d(scale_factor=2),
        nn.UpsamplingBilinear2d((7, 5)),
    ],
)
def test_modules(module: Function) -> None:
    assert_first_order(module, IMAGE)


def test_weights_that_were_not_squared_would_be_seen() -> None:
    found: Any = F.interpolate(IMAGE, scale_factor=2, mode="bilinear")
    assert not torch.allclose(found.variance, F.interpolate(IMAGE.variance, scale_factor=2, mode="bilinear"), rtol=0.1)


@over("mode", ["nearest", "bilinear"])
def test_small_variances_survive_float16(mode: str) -> None:
    x: Any = Gaussian(torch.ones(1, 1, 2, 2).half(), torch.full((1, 1, 2, 2), 1e-8))
    with torch.autocast("cpu", torch.float16):
        found: Any = F.interpolate(x, scale_factor=2, mode=mode)
    assert found.dtype == torch.float16 and found.variance.dtype == torch.float32
    assert found.variance.min().item() > 1e-9


def test_copies_that_are_averaged_again_lose_what_is_stated() -> None:
    """A quarter of the variance, where the truth is all of it."""

    def there_and_back(x: Any) -> Any:
        return F.avg_pool2d(F.interpolate(x, scale_factor=2), 2)

    found, samples = moments_of(there_and_back, IMAGE), sampled(there_and_back, IMAGE, count=20_000)
    torch.testing.assert_close(found.variance, IMAGE.variance / 4)
    assert ((samples.var(0) / IMAGE.variance - 1).abs() < 5 * (2 / 20_000) ** 0.5).all()


@over("mode", ["nearest", "bilinear"])
def test_a_random_convolution_of_an_upsampled_image_is_as_far_off_as_stated(mode: str) -> None:
    """1.1 of the deviation on average, 0.7 to 2.3 for single elements."""
    x, kernel = uncertain(1, 8, 8, 8, seed=3), certain(16, 8, 3, 3)

    def convolved(x: Any) -> Any:
        return F.conv2d(F.interpolate(x, scale_factor=2, mode=mode), kernel, padding=1)

    torch.manual_seed(0)
    draws = convolved(x.loc + x.scale * torch.randn(1000, 8, 8, 8).double())
    ratio = moments_of(convolved, x).scale[0] / draws.std(0)
    assert 1.0 < ratio.mean().item() < 1.15
    assert 0.6 < ratio.min().item() < 0.8 and 1.7 < ratio.max().item() < 2.5


class Net(nn.Module):
    """A U-Net of one step down and up."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.before, self.within, self.after = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3), nn.Conv2d(8, 1, 1)
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        skip = torch.relu(self.before(x))
        deep = torch.relu(self.within(F.max_pool2d(skip, 2)))
        up = F.interpolate(deep, size=skip.shape[2:], mode=self.mode)
        return self.after(torch.cat([up, skip], 1))


@over("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("estimator", [bl.moments, bl.taylor_moments])
def test_a_bayesian_u_net_is_passed_and_trained_by_moments(mode: str, estimator: Any) -> None:
    torch.manual_seed(0)
    net = bl.bayesianize_(Net(mode))
    with bl.using(net, estimator):
        found: Any = net(torch.randn(2, 1, 8, 8))
    assert isinstance(found, Gaussian) and found.shape == (2, 1, 8, 8)
    (found.loc.square() + found.variance).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in net.parameters())


@over("mode", ["nearest", "bilinear"])
def test_a_u_net_of_noisy_inputs_against_draws(mode: str) -> None:
    """Correlations of copies and neighbours are lost, as those of all maps are: on average up to a quarter."""
    torch.manual_seed(0)
    net, x = Net(mode).double(), uncertain(1, 1, 8, 8, scale=0.03)
    with torch.no_grad():
        found = moments_of(net, x)
    samples = sampled(net, x, count=2000)
    assert 0.75 < (found.scale / samples.std(0)).mean().item() < 1.1
