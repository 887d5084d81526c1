import math

import pytest
import torch
from torch import nn

from bayeslim.optim import SGHMC, SGLD
from optim.recursions import CENTRE, CURVATURE, check_moments, momentum_covariance, run_chains, stationary_covariance

CHAINS = 20_000
EYE = torch.eye(3, dtype=torch.float64)


def chains() -> nn.Parameter:
    return nn.Parameter(CENTRE.expand(CHAINS, 3).clone())


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_sgld_has_the_moments_of_its_recursion(temperature: float) -> None:
    lr, count, decay = 0.3, 30, 0.2
    weights = chains()
    optimizer = SGLD([weights], num_data=count, lr=lr, temperature=temperature, weight_decay=decay)
    total = CURVATURE + decay * EYE
    covariance = stationary_covariance(EYE - lr * total, 2 * lr * temperature / count * EYE)
    check_moments(run_chains(optimizer, weights, 120), torch.linalg.solve(total, CURVATURE @ CENTRE), covariance)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_sghmc_has_the_moments_of_its_recursion(momentum: float) -> None:
    lr, count, decay, temperature = 0.2, 30, 0.2, 0.7
    weights = chains()
    optimizer = SGHMC([weights], num_data=count, lr=lr, momentum=momentum, temperature=temperature, weight_decay=decay)
    total = CURVATURE + decay * EYE
    noise = math.sqrt(2 * (1 - momentum) * lr * temperature / count)
    covariance = momentum_covariance(total, torch.ones(3, dtype=torch.float64), momentum, lr, noise)
    check_moments(run_chains(optimizer, weights, 150), torch.linalg.solve(total, CURVATURE @ CENTRE), covariance)


def test_small_steps_at_temperature_one_sample_the_posterior() -> None:
    """`lr a <= 0.047`, so that the bias `lr a / (2 + 2 b)` stays below 1.3 %."""
    weights = chains()
    posterior = torch.linalg.inv(40 * CURVATURE)
    optimizer = SGHMC([weights], num_data=40, lr=0.02, momentum=0.8)
    check_moments(run_chains(optimizer, weights, 250), CENTRE, posterior, slack=0.013)


def test_variance_formulas_of_the_docstrings() -> None:
    curvature, lr, momentum, count = 1.7, 0.5, 0.6, 25
    one = torch.ones(1, dtype=torch.float64)
    sgld = stationary_covariance((1 - lr * curvature) * one[:, None], 2 * lr / count * one[:, None]).item()
    assert sgld == pytest.approx(1 / (count * curvature) / (1 - lr * curvature / 2), rel=1e-10)
    noise = math.sqrt(2 * (1 - momentum) * lr / count)
    sghmc = momentum_covariance(curvature * one[:, None], one, momentum, lr, noise).item()
    assert sghmc == pytest.approx(1 / (count * curvature) / (1 - lr * curvature / (2 + 2 * momentum)), rel=1e-10)


@pytest.mark.parametrize("kind", [SGLD, SGHMC])
def test_zero_temperature_is_gradient_descent(kind: type[SGLD] | type[SGHMC]) -> None:
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 9)) for _ in range(2))
    sampler = kind([ours], num_data=100, lr=0.05, temperature=0.0, weight_decay=0.1)
    descent = torch.optim.SGD([theirs], 0.05, momentum=0.9 if kind is SGHMC else 0.0, weight_decay=0.1)
    for _ in range(30):
        for weights, optimizer in ((ours, sampler), (theirs, descent)):
            optimizer.zero_grad()
            (weights.sin() * torch.arange(9)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_momentum_out_of_range() -> None:
    with pytest.raises(ValueError, match="`momentum` must lie in \\[0, 1\\), got 1.0"):
        SGHMC([nn.Parameter(torch.ones(2))], num_data=10, lr=0.1, momentum=1.0)
