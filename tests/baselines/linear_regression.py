"""Bayesian linear regression in closed form."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bayeslim.predictive import Snapshots

NOISE, PRIOR_STD = 0.5, 0.8


def problem() -> tuple[Tensor, Tensor]:
    """16 examples of two inputs and noise `NOISE`."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(16, 2, generator=generator, dtype=torch.float64)
    noise = NOISE * torch.randn(16, 1, generator=generator, dtype=torch.float64)
    return x, x @ torch.tensor([[1.0], [-2.0]], dtype=torch.float64) + 0.5 + noise


def posterior() -> tuple[Tensor, Tensor]:
    """Mean (3,) and covariance (3, 3) of weights, bias: `S = (A'A / noise^2 + I / prior^2)^-1`, `S A'y / noise^2`."""
    x, y = problem()
    a = torch.cat([x, torch.ones(16, 1, dtype=torch.float64)], 1)
    covariance = torch.linalg.inv(a.T @ a / NOISE**2 + torch.eye(3, dtype=torch.float64) / PRIOR_STD**2)
    return (covariance @ a.T @ y / NOISE**2)[:, 0], covariance


def layer() -> nn.Linear:
    """A layer at the posterior mean."""
    mean, _ = posterior()
    result = nn.Linear(2, 1, dtype=torch.float64)
    with torch.no_grad():
        result.weight.copy_(mean[None, :2])
        result.bias.copy_(mean[2:])
    return result


def drawn(snapshots: Snapshots) -> Tensor:
    """Draws of weights and bias, (samples, 3)."""
    states = [snapshots[index] for index in range(len(snapshots))]
    return torch.stack([torch.cat([state["weight"].flatten(), state["bias"]]) for state in states])
