"""Bayesian linear regression with known noise: everything has a closed form."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Regression:
    r"""`y = x w + noise` per output, prior `w ~ N(prior_mean, prior_std^2)`.

    The posterior of each output is `N(mean, precision^-1)` with `precision = x^T x / noise^2 + 1 / prior_std^2`;
    among factorised Gaussians the best has the same mean and the variances `1 / diag(precision)`.
    """

    x: Tensor
    y: Tensor
    noise: float
    prior_mean: float
    prior_std: float

    @property
    def precision(self) -> Tensor:
        gram = self.x.T @ self.x / self.noise**2
        return gram + torch.eye(len(gram), dtype=gram.dtype) / self.prior_std**2

    @property
    def mean(self) -> Tensor:
        """(outputs, inputs), as a weight."""
        right = self.x.T @ self.y / self.noise**2 + self.prior_mean / self.prior_std**2
        return torch.linalg.solve(self.precision, right).T

    @property
    def factorised_variance(self) -> Tensor:
        """The same for every output: (inputs,)."""
        return 1 / self.precision.diagonal()

    @property
    def negative_log_evidence(self) -> float:
        """`-ln p(y | x)` in nats, all outputs together: `y ~ N(prior_mean sum(x), noise^2 + prior_std^2 x x^T)`."""
        covariance = self.prior_std**2 * self.x @ self.x.T + self.noise**2 * torch.eye(len(self.x), dtype=self.x.dtype)
        mean = self.prior_mean * self.x.sum(1)
        evidence = torch.distributions.MultivariateNormal(mean, covariance)
        return -evidence.log_prob(self.y.T).sum().item()

    @property
    def factorised_gap(self) -> float:
        """What the best factorised posterior loses: `0.5 (sum_i ln precision_ii - ln det precision)` per output."""
        precision = self.precision
        gap = 0.5 * (precision.diagonal().log().sum() - precision.logdet())
        return gap.item() * self.y.shape[1]


def regression(num_data: int = 64, inputs: int = 4, outputs: int = 2, seed: int = 0) -> Regression:
    """Correlated inputs, so that the best factorised variances are not the marginal ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_data, inputs, generator=generator, dtype=torch.float64)
    x = x + 0.7 * x.roll(1, dims=1)
    weight = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
    y = x @ weight.T + 0.5 * torch.randn(num_data, outputs, generator=generator, dtype=torch.float64)
    return Regression(x, y, noise=0.5, prior_mean=0.3, prior_std=0.8)
