"""The Student-t prior."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from bayeslim.priors import Normal, StudentT
from contracts.members import over
from contracts.oracles import expectation, kl_by_quadrature, log_student, log_uniform_kl


def marginal(mean: float, std: float) -> tuple[Tensor, Tensor]:
    return torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64).square()


@over("nu", [0.1, 3.0, 100.0])
@over("size", [1e-3, 1.0, 1e4])
def test_error_over_degrees_of_freedom(nu: float, size: float) -> None:
    """`E[z]` up to 1e8, where the documentation ends; the widest case is the worst."""
    scale = 0.2
    width = scale * math.sqrt(nu)
    mean, std = 0.3 * size * width, 0.9 * size * width
    kinks = [k * width for k in (-100, -10, -1, 0, 1, 10, 100)]
    expected = kl_by_quadrature(log_student(nu, scale), mean, std, kinks)
    value = StudentT(nu, scale).kl(*marginal(mean, std)).item()
    assert value == pytest.approx(expected, rel=0, abs=2.5e-5 * (nu + 1) + 1e-9)


def test_many_degrees_of_freedom_tend_to_the_normal() -> None:
    mean, variance = marginal(0.4, 0.3)
    value = StudentT(nu=1e4, scale=0.5, nodes=200).kl(mean, variance)
    assert value.item() == pytest.approx(Normal(0.0, 0.5).kl(mean, variance).item(), abs=1e-2)


def test_few_degrees_of_freedom_tend_to_the_log_uniform_prior() -> None:
    """Up to the constant that makes one of them proper: differences are compared."""
    prior = StudentT(nu=1e-6, scale=1.0)
    values = [prior.kl(*marginal(1.0, math.exp(0.5 * la))).item() for la in (-6.0, -2.0, 1.0)]
    exact = [log_uniform_kl(la) for la in (-6.0, -2.0, 1.0)]
    for one, two in ((0, 1), (1, 2)):
        assert values[one] - values[two] == pytest.approx(exact[one] - exact[two], abs=5e-3)


def test_it_is_the_normal_with_a_gamma_precision() -> None:
    a, b = 1.5, 0.3
    for w in (0.0, 0.7, 3.0):

        def joint(tau: float, w: float = w) -> float:
            return float(stats.norm.pdf(w, 0, tau**-0.5) * stats.gamma.pdf(tau, a, scale=1 / b))

        mixed = integrate.quad(joint, 0, 200, limit=200)[0]
        assert stats.t.pdf(w, 2 * a, 0, math.sqrt(b / a)) == pytest.approx(mixed, rel=1e-7)
    prior = StudentT(2 * a, math.sqrt(b / a))
    cross = expectation(log_student(2 * a, math.sqrt(b / a)), 0.2, 0.4)
    negative_entropy = -0.5 * math.log(2 * math.pi * math.e * 0.16)
    assert prior.kl(*marginal(0.2, 0.4)).item() == pytest.approx(negative_entropy - cross, abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nu": 0.0}, r"`nu` must be positive, got 0\.0"),
        ({"nu": math.nan}, r"`nu` must be positive, got nan"),
        ({"scale": -1.0}, r"`scale` must be positive, got -1\.0"),
        ({"scale": math.inf}, r"`scale` must be positive, got inf"),
        ({"nodes": 1}, r"`nodes` must be at least 2, got 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StudentT(**options)  # pyright: ignore[reportArgumentType]
