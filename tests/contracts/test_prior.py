"""What every prior promises: sign, gradients, extremes, and the value by quadrature."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from bayeslim import priors
from bayeslim.posteriors import MeanField
from contracts.cases import each
from contracts.members import DENSITIES, PRIORS, PROPER, over
from contracts.oracles import LogDensity, kl_by_quadrature, log_scale_mixture, log_student

MEANS, STDS = (0.0, 0.3, -2.0), (0.03, 0.5, 2.0)
EXTREME_SCALES = [1e-15, 1e-10, 1e-6, 1e-3, 1.0, 30.0, 1e3]


def marginal(mean: float, std: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """One weight, as a vector."""
    return torch.tensor([mean], dtype=dtype), torch.tensor([std], dtype=dtype).square()


def grid(name: str) -> tuple[Tensor, Tensor]:
    """Means and variances of all sizes; only `alpha <= 1` for Kingma's polynomial."""
    pairs = list(itertools.product((0.0, 1e-3, 0.1, -0.7, 3.0), (1e-4, 1e-2, 0.3, 1.0, 4.0)))
    if name == "LogUniform-kingma":
        pairs = [(mean, std) for mean, std in pairs if std <= abs(mean)]
    mean, std = torch.tensor(pairs, dtype=torch.float64).T
    return mean.contiguous(), std.square()


def refined(name: str) -> priors.Prior:
    """The prior with enough quadrature nodes to make the quadrature exact."""
    prior = PRIORS[name]()
    config = prior.config()
    return type(prior)(**{**config, "nodes": 300}) if "nodes" in config else prior


@over("name", PROPER)
def test_kl_is_not_negative(name: str) -> None:
    assert bool((PRIORS[name]().kl(*grid(name)) >= 0).all())


@over("name", PRIORS)
def test_kl_is_elementwise(name: str) -> None:
    mean, variance = grid(name)
    prior = PRIORS[name]()
    together = prior.kl(mean, variance)
    alone = torch.stack([prior.kl(m[None], v[None])[0] for m, v in zip(mean, variance, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-12)
    assert together.shape == mean.shape
    assert prior.kl(mean.float(), variance.float()).dtype == torch.float32


@over("name", PRIORS)
def test_gradients_match_finite_differences(name: str) -> None:
    mean = torch.tensor([0.5, -1.2, 0.03], dtype=torch.float64, requires_grad=True)
    variance = torch.tensor([0.04, 0.9, 0.0003], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(refined(name).kl, (mean, variance), eps=1e-7, atol=1e-6, rtol=1e-5)


@over("name", ["StudentT", "ScaleMixture", "ScaleMixture-wide"])
def test_gradients_of_the_default_quadrature(name: str) -> None:
    """In units of `d / d ln std`, the KL itself being of order 1 to 10."""

    def gradients(prior: priors.Prior) -> tuple[Tensor, Tensor]:
        mean, variance = (value.requires_grad_() for value in grid(name))
        by_mean, by_variance = torch.autograd.grad(prior.kl(mean, variance).sum(), (mean, variance))
        return by_mean * variance.detach().sqrt(), 2 * by_variance * variance.detach()

    torch.testing.assert_close(gradients(PRIORS[name]()), gradients(refined(name)), rtol=0, atol=5e-3)


@each("scale", EXTREME_SCALES)
@over("name", PRIORS)
def test_extremes_stay_finite_in_float32(name: str, scale: float) -> None:
    """Both by (mean, variance) and through a posterior, also for weights that are exactly zero."""
    prior = PRIORS[name]()
    mean = torch.tensor([0.0, 1e-3, 1.0, -30.0], requires_grad=True)
    variance = torch.full((4,), scale**2, requires_grad=True)
    posterior = MeanField(torch.tensor([0.0, 1e-3, 1.0, -30.0]), scale=scale)
    values = [prior.kl(mean, variance), prior.kl(posterior.mean(), posterior.variance())]
    for value, inputs in zip(values, [(mean, variance), tuple(posterior.parameters())], strict=True):
        assert bool(value.isfinite().all())
        for gradient in torch.autograd.grad(value.sum(), inputs):
            assert bool(gradient.isfinite().all())


EXTREMES = (0.0, 1e-30, 1e-15, 1e-4, 1.0, 1e4, 1e15, 1e19, 1e25, 1e30)


def extremes(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Means and logs of standard deviations from 1e-30 to 1e30, in all pairs, one per row."""
    mean, std = torch.tensor(list(itertools.product(EXTREMES, EXTREMES[1:])), dtype=torch.float64).T
    return mean[:, None].to(dtype), std.log()[:, None].to(dtype)


@over("name", PRIORS)
def test_sums_from_1e_minus_30_to_1e30(name: str) -> None:
    """In float32, whose squares end at 1.8e19, the sum of a weight is the one in float64, or beyond float32's range."""
    prior = PRIORS[name]()
    for mean, log_std in zip(*extremes(torch.float64), strict=True):
        exact = prior.total(mean, log_std).item()
        small = [part.float().requires_grad_() for part in (mean, log_std)]
        found = prior.total(*small)
        slopes = torch.autograd.grad(found, small)
        assert math.isfinite(exact) and not any(slope.isnan().any() for slope in slopes), (mean, log_std)
        if abs(exact) > torch.finfo(torch.float32).max:
            assert found.item() == math.inf
        else:  # the log of a standard deviation of 1e30 has an error of 4e-6 in float32, its square of 8e-6 of itself
            assert found.item() == pytest.approx(exact, rel=2e-5, abs=2e-5), (mean, log_std)


@each("dtype", [torch.bfloat16, torch.float32, torch.float64])
@over("name", PRIORS)
def test_elementwise_from_1e_minus_30_to_1e30(name: str, dtype: torch.dtype) -> None:
    """Also where the type does not hold variances, which are then 0 or infinite. Networks of float16 use float32."""
    mean, log_std = extremes(torch.float64)
    inputs = [part.to(dtype).requires_grad_() for part in (mean, (2 * log_std).exp())]
    value = PRIORS[name]().kl(*inputs)
    slopes = torch.autograd.grad(value.sum(), inputs)
    assert not value.isnan().any() and not any(slope.isnan().any() for slope in slopes)


@over("name", PRIORS)
def test_a_variance_of_zero_is_finite(name: str) -> None:
    variance = torch.zeros(2, requires_grad=True)
    value = PRIORS[name]().kl(torch.tensor([0.0, 0.5]), variance)
    (gradient,) = torch.autograd.grad(value.sum(), variance)
    assert bool(value.isfinite().all() and gradient.isfinite().all())


@over("name", PRIORS)
def test_config_rebuilds_it(name: str) -> None:
    prior = PRIORS[name]()
    rebuilt = type(prior)(**prior.config())
    rebuilt.load_state_dict(prior.state_dict(), strict=True)
    for twin in (rebuilt, copy.deepcopy(prior)):
        assert torch.equal(twin.kl(*grid(name)), prior.kl(*grid(name)))
        assert repr(twin) == repr(prior)


@each("std", STDS)
@each("mean", MEANS)
@over("name", DENSITIES)
def test_closed_forms_equal_quadrature(name: str, mean: float, std: float) -> None:
    value = PRIORS[name]().kl(*marginal(mean, std))
    kinks = [0.0]  # of densities such as exp(-|w|)
    assert value.item() == pytest.approx(kl_by_quadrature(DENSITIES[name], mean, std, kinks), rel=1e-6)


def quadrature_cases(name: str) -> tuple[priors.Prior, LogDensity, Sequence[float], float]:
    """The prior, its log density, where it is rough, and its documented error."""
    prior = PRIORS[name]()
    if isinstance(prior, priors.StudentT):
        rough = prior.scale * math.sqrt(prior.nu)
        return prior, log_student(prior.nu, prior.scale), [-rough, 0.0, rough], 1e-4
    assert isinstance(prior, priors.ScaleMixture)
    log_density = log_scale_mixture(prior.pi, prior.wide, prior.narrow)
    return prior, log_density, [k * prior.narrow for k in (-9, -6, -3, -1, 0, 1, 3, 6, 9)], 1e-3


@each("std", (1e-5, 0.003, 0.3, 2.0))
@each("mean", (0.0, 0.008, 0.3, -2.0))
@over("name", ["StudentT", "ScaleMixture", "ScaleMixture-wide"])
def test_quadratures_are_as_good_as_documented(name: str, mean: float, std: float) -> None:
    prior, log_density, kinks, error = quadrature_cases(name)
    expected = kl_by_quadrature(log_density, mean, std, kinks)
    for dtype in (torch.float64, torch.float32):
        value = prior.kl(*marginal(mean, std, dtype))
        assert value.item() == pytest.approx(expected, rel=0, abs=error)


@over("name", ["StudentT", "ScaleMixture", "ScaleMixture-wide"])
def test_quadratures_converge_to_the_integral(name: str) -> None:
    """Up to the fixed window of the Student-t rule, which leaves out `e^-14 (nu + 1) / 2` nats."""
    _, log_density, kinks, _ = quadrature_cases(name)
    for mean, std in itertools.product((0.0, 0.3), (0.05, 0.6)):
        value = refined(name).kl(*marginal(mean, std))
        assert value.item() == pytest.approx(kl_by_quadrature(log_density, mean, std, kinks), rel=0, abs=2e-6)
