"""Stochastic-gradient Langevin dynamics, without and with momentum."""

from __future__ import annotations

import math
from typing import Any

from torch.optim.optimizer import ParamsT

from bayeslim.optim.injection import Block, Sampler, many

__all__ = ["SGHMC", "SGLD"]


class SGLD(Sampler):
    r"""Stochastic-gradient Langevin dynamics (Welling and Teh 2011): gradient descent plus noise.

    With the gradient `g` of the mean negative log-likelihood, `wd` = `weight_decay` (prior precision / N),
    `N` = `num_data`, temperature `T` and `eps ~ N(0, 1)` (to 16 bits on the CPU, see `Sampler`),

        w <- w - lr (g + wd w) + sqrt(2 lr T / N) eps

    samples the posterior to the power `1/T` as `lr -> 0`. On a quadratic loss of curvature `a` the variance is exactly
    `T / (N a) / (1 - lr a / 2)`. The noise of mini-batch gradients comes on top: it is of order `lr^2`, the injected
    one of order `lr`.

    Args:
        params: parameters or groups; a group may have its own `temperature` and `weight_decay`.
        num_data: number of training examples N.
        lr: learning rate, in the units of SGD on the mean loss.
        temperature: T; 1 is the posterior, 0 plain gradient descent.
        weight_decay: prior precision / N; per element by `set_weight_decay_`.
        seed: of the noise; give other chains another one, and all ranks of a data-parallel run the same.

    Example:
        >>> optimizer = SGLD(model.parameters(), num_data=50_000, lr=0.1, weight_decay=1 / 50_000)
    """

    def __init__(
        self,
        params: ParamsT,
        *,
        num_data: int,
        lr: float,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        options = dict(num_data=num_data, lr=lr, temperature=temperature, weight_decay=weight_decay, seed=seed)
        super().__init__(params, options)

    def update(self, group: dict[str, Any], block: Block) -> None:
        """See the class docstring."""
        lr, scale = group["lr"], math.sqrt(2 * group["lr"] * group["temperature"] / group["num_data"])
        block.add_decayed_(block.weights, block.weights, group, -lr)
        many._foreach_add_(block.weights, block.gradients, alpha=-lr)
        if scale:
            many._foreach_add_(block.weights, block.noise(), alpha=scale)


class SGHMC(Sampler):
    r"""Stochastic-gradient Hamiltonian Monte Carlo (Chen et al. 2014): SGD with momentum plus noise.

    With the gradient `g` of the mean negative log-likelihood, `wd` = `weight_decay` (prior precision / N),
    momentum `b`, `N` = `num_data`, temperature `T` and `eps ~ N(0, 1)` (to 16 bits on the CPU, see `Sampler`),

        v <- b v - lr (g + wd w) + sqrt(2 (1 - b) lr T / N) eps,   w <- w + v

    (their eq. 15 without an estimate of the gradient noise). On a quadratic loss of curvature `a` the variance is
    exactly `T / (N a) / (1 - lr a / (2 + 2 b))`: `b = 0` is SGLD, and `b` halves its bias at best.

    Args:
        params: parameters or groups; a group may have its own `temperature` and `weight_decay`.
        num_data: number of training examples N.
        lr: learning rate, in the units of SGD with momentum on the mean loss.
        momentum: b, in [0, 1).
        temperature: T; 1 is the posterior, 0 plain heavy-ball descent.
        weight_decay: prior precision / N; per element by `set_weight_decay_`.
        seed: of the noise; give other chains another one, and all ranks of a data-parallel run the same.

    Example:
        >>> optimizer = SGHMC(model.parameters(), num_data=50_000, lr=0.01, weight_decay=1 / 50_000)
    """

    state_names = ("velocity",)

    def __init__(
        self,
        params: ParamsT,
        *,
        num_data: int,
        lr: float,
        momentum: float = 0.9,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        options = dict(num_data=num_data, lr=lr, temperature=temperature, weight_decay=weight_decay, seed=seed)
        super().__init__(params, options | {"momentum": momentum})

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options that make no sense."""
        super().check_group(group)
        if not 0 <= group["momentum"] < 1:
            raise ValueError(f"`momentum` must lie in [0, 1), got {group['momentum']}: pass e.g. 0.9")

    def update(self, group: dict[str, Any], block: Block) -> None:
        """See the class docstring."""
        velocity, lr, momentum = block.kept("velocity"), group["lr"], group["momentum"]
        scale = math.sqrt(2 * (1 - momentum) * lr * group["temperature"] / group["num_data"])
        many._foreach_mul_(velocity, momentum)
        many._foreach_add_(velocity, block.gradients, alpha=-lr)
        block.add_decayed_(velocity, block.weights, group, -lr)
        if scale:
            many._foreach_add_(velocity, block.noise(), alpha=scale)
        many._foreach_add_(block.weights, velocity)
