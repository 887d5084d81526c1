"""Gaussian dropout per weight."""

from __future__ import annotations

import math

import pytest
import torch

from bayeslim.divergence import kl_divergence
from bayeslim.log_alpha import log_alpha
from bayeslim.posteriors import Multiplicative
from bayeslim.priors import ARD, LogUniform, Prior
from contracts.members import over

WEIGHT = torch.tensor([[0.5, -2.0], [1e-3, 3.0]], dtype=torch.float64)


@over("alpha", [0.01, 0.25, 5.0])
def test_variance_is_alpha_times_the_squared_mean(alpha: float) -> None:
    posterior = Multiplicative(WEIGHT, alpha=alpha)
    torch.testing.assert_close(posterior.variance(), alpha * WEIGHT.square())
    rates = log_alpha(posterior.mean(), posterior.variance())
    torch.testing.assert_close(rates, torch.full_like(WEIGHT, math.log(alpha)))


def test_a_bound_of_one_is_a_sigmoid() -> None:
    posterior = Multiplicative(WEIGHT, alpha=0.1, max_alpha=1.0)
    with torch.no_grad():
        posterior.log_alpha.copy_(torch.tensor([[-3.0, 0.0], [2.0, 40.0]]))
    expected = posterior.log_alpha.sigmoid() * WEIGHT.square()
    torch.testing.assert_close(posterior.variance(), expected)
    assert bool((posterior.variance() <= WEIGHT.square()).all())


def test_the_bound_is_known_to_priors() -> None:
    assert Multiplicative(WEIGHT).max_alpha == math.inf
    assert Multiplicative(WEIGHT, max_alpha=1.0).max_alpha == 1.0


def test_a_weight_of_zero_has_no_noise() -> None:
    posterior = Multiplicative(torch.zeros(2, 2), alpha=0.5)
    assert torch.equal(posterior.rsample(), torch.zeros(2, 2))
    assert torch.equal(posterior.variance(), torch.zeros(2, 2))


@over("max_alpha", [0.05, 1.0])
def test_a_bound_on_either_side_of_the_default_rate_is_rebuilt(max_alpha: float) -> None:
    posterior = Multiplicative(WEIGHT, alpha=0.01, max_alpha=max_alpha)
    twin = Multiplicative(WEIGHT, **posterior.config())  # pyright: ignore[reportArgumentType]
    twin.load_state_dict(posterior.state_dict())
    assert torch.equal(twin.variance(), posterior.variance())


@over("alpha", [0.0, -0.1, 1.0, 2.0, math.nan])
def test_rates_outside_the_bound_are_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"`alpha` must be positive and below `max_alpha`=1\.0, got"):
        Multiplicative(WEIGHT, alpha=alpha, max_alpha=1.0)


@over("prior", [LogUniform(), LogUniform("kingma"), ARD()])
def test_the_kl_of_a_rate_does_not_depend_on_the_weight(prior: Prior) -> None:
    """Not even near 0, where `log_alpha` takes every mean for 1e-8, nor do its gradients."""
    weight = torch.tensor([1.0, 1e-3, 1e-7, 1e-9, -1e-12, 0.0])
    found = [Multiplicative(part, alpha=0.1, max_alpha=1.0) for part in weight.split(1)]
    terms = torch.stack([kl_divergence(posterior, prior) for posterior in found])
    torch.testing.assert_close(terms, terms[:1].expand(6), rtol=1e-5, atol=0)
    terms.sum().backward()
    for posterior in found:
        assert posterior.loc.grad is not None and posterior.log_alpha.grad is not None
        assert abs(posterior.loc.grad.item()) <= 1e-6 / max(1e-8, abs(posterior.loc.item()))
        torch.testing.assert_close(posterior.log_alpha.grad, found[0].log_alpha.grad, rtol=1e-5, atol=0)
