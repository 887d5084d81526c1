"""Independent evaluations of the samplers: exact moments of linear recursions, and CV-Adam as first printed."""

from dataclasses import dataclass

import torch
from torch import Tensor

CURVATURE = torch.tensor([[2.0, 0.6, 0.0], [0.6, 1.0, -0.2], [0.0, -0.2, 0.5]], dtype=torch.float64)
CENTRE = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)


def stationary_covariance(transition: Tensor, noise: Tensor) -> Tensor:
    """The solution of `S = F S F^T + Q` (discrete Lyapunov equation), by Kronecker products."""
    size = len(transition)
    system = torch.eye(size * size, dtype=transition.dtype) - torch.kron(transition, transition)
    return torch.linalg.solve(system, noise.reshape(-1)).view(size, size)


def momentum_covariance(curvature: Tensor, scale: Tensor, momentum: float, lr: float, noise: float) -> Tensor:
    """Covariance of `w` under `v <- b v - lr H w + noise eps`, `w <- w + scale v`."""
    eye, scaling = torch.eye(len(curvature), dtype=curvature.dtype), torch.diag(scale)
    transition = torch.cat(
        [
            torch.cat([eye - lr * scaling @ curvature, momentum * scaling], 1),
            torch.cat([-lr * curvature, momentum * eye], 1),
        ]
    )
    injected = torch.cat([scaling, eye]) * noise
    return stationary_covariance(transition, injected @ injected.T)[: len(curvature), : len(curvature)]


def run_chains(optimizer: torch.optim.Optimizer, weights: Tensor, steps: int) -> Tensor:
    """Run one chain per row of `weights` on `0.5 (w - c)^T A (w - c)` and return the last states."""
    for _ in range(steps):
        weights.grad = (weights.detach() - CENTRE) @ CURVATURE
        optimizer.step()
    return weights.detach()


def check_moments(states: Tensor, mean: Tensor, covariance: Tensor, slack: float = 0.0) -> None:
    """Mean and covariance over independent rows within 5 standard errors (plus a relative `slack`)."""
    count, variance = len(states), covariance.diagonal()
    assert ((states.mean(0) - mean).abs() < 5 * (variance / count).sqrt()).all()
    error = ((torch.outer(variance, variance) + covariance.square()) / count).sqrt()
    bound = 5 * error + slack * torch.outer(variance, variance).sqrt()
    assert ((torch.cov(states.T) - covariance).abs() < bound).all()


@dataclass
class FirstForm:
    """Algorithm 1 of CV-Adam: an explicit mean, and weights `w = mean + alpha tau eps` drawn from it."""

    mean: Tensor
    num_data: int
    lr: float
    knob: float
    beta1: float = 0.1
    beta2: float = 1.0
    eta: float = 0.1
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        self.rho, self.momentum = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        self.alpha = self.knob * self.lr**0.75

    def step(self, weights: Tensor, gradient: Tensor, eps: Tensor) -> None:
        """Take in the gradient at `weights`, whose noise is `eps`."""
        tau = torch.sigmoid(self.rho)
        self.momentum = self.beta1 * self.momentum + self.beta2 * (gradient + self.weight_decay * weights)
        slope = self.alpha * eps * gradient + self.alpha**2 * self.weight_decay * tau - 1 / (self.num_data * tau)
        self.rho = self.rho - self.eta * slope
        self.mean = self.mean - self.lr * torch.sigmoid(self.rho) * self.momentum
