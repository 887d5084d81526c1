"""CV-Adam: SGHMC with a learned scale per weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from bayeslim.optim.injection import Block, Sampler, check_gradient, first_seed, many

__all__ = ["CVAdam"]

Temperature = float | Literal["posterior", "cold"]


class CVAdam(Sampler):
    r"""SGHMC whose step and noise have a scale `tau` per weight, learned by mirror descent.

    With the gradient `g` of the mean negative log-likelihood, `l` = `lr`, `alpha = k l^(3/4)`, `wd` =
    `weight_decay` (prior precision / N, inside the gradient), `N` = `num_data` and `eps ~ N(0, 1)` (to 16 bits on the
    CPU, see `Sampler`), each step does

        rho <- rho - eta (alpha^2 wd tau + alpha eps g - 1 / (N tau)),   tau = sigmoid(rho)     (the old eps)
        v   <- beta1 v - beta2 l (g + wd w) + sqrt(2 + 2 beta1^2) alpha eps                     (a new eps)
        w   <- w + tau v

    from `rho = 0`, `v = 0` (the published code starts at `v = 0.001 N(0, 1)`, forgotten at the rate `beta1`). The
    old `eps` is not stored but drawn again from its seed: two tensors per parameter, as Adam.

    **What it samples.** With `tau` frozen (`eta=0`) and a quadratic loss of curvature `a` the stationary variance is

        Var w = T / (N a) / (1 - beta2 tau l a / (2 + 2 beta1))
        T     = N k^2 tau sqrt(l) (1 + beta1^2) / (beta2 (1 - beta1))

    so `T` is the temperature: it differs by weight through `tau`, and falls with the learning rate. The posterior
    (`T = 1`) needs `k = sqrt(beta2 (1 - beta1) / ((1 + beta1^2) N tau sqrt(l)))`; the published `k = 1/sqrt(N)`
    is far colder at small `l` (`T = 0.06` at `l = 0.01`, `tau = 0.5`). With `eta > 0` the drift
    `eta / (N tau)` dominates, `tau` grows slowly towards 1 and hardly differs between weights.

    A group may set `temperature` and `weight_decay` of its own: 0 excludes biases and norms (second example).

    Args:
        params: parameters or groups.
        num_data: number of training examples N.
        lr: learning rate l, read anew every step; the effective one is `tau l`.
        temperature: k: "posterior" is `1/sqrt(N)`, "cold" is `1/N` (the names of the paper; see above), or a number.
        beta1: momentum, in [0, 1).
        beta2: weight of the gradient.
        eta: step of `rho`; 0 freezes `tau`.
        weight_decay: prior precision / N; per element by `set_weight_decay_`.
        seed: of the noise; give other chains another one, and all ranks of a data-parallel run the same.

    Example:
        >>> optimizer = CVAdam(model.parameters(), num_data=50_000, lr=1.0, weight_decay=5e-4)
        >>> groups = [g | ({"temperature": 0.0} if g["name"] == "plain" else {}) for g in
        ...           bl.param_groups(model, weight_decay=5e-4)]
        >>> optimizer = CVAdam(groups, num_data=50_000, lr=1.0)
    """

    state_names = ("rho", "velocity")
    _fused: tuple[int, bool] | None = None
    _tables: dict[int, Any]

    def __init__(
        self,
        params: ParamsT,
        *,
        num_data: int,
        lr: float,
        temperature: Temperature = "posterior",
        beta1: float = 0.1,
        beta2: float = 1.0,
        eta: float = 0.1,
        weight_decay: float = 0.0,
        seed: int = 0,
    ) -> None:
        options = dict(num_data=num_data, lr=lr, temperature=temperature, weight_decay=weight_decay, seed=seed)
        super().__init__(params, options | {"beta1": beta1, "beta2": beta2, "eta": eta})

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options that make no sense."""
        if isinstance(group["temperature"], str) and group["temperature"] not in ("posterior", "cold"):
            raise ValueError(
                f"`temperature` must be 'posterior', 'cold' or a number that is not negative, got "
                f"{group['temperature']!r}"
            )
        named = isinstance(group["temperature"], str)
        super().check_group(group | {"temperature": 1.0} if named else group)
        if not 0 <= group["beta1"] < 1:
            raise ValueError(f"`beta1` must lie in [0, 1), got {group['beta1']}: pass e.g. 0.1")
        if not 0 < group["beta2"] < math.inf:
            raise ValueError(f"`beta2` must be positive, got {group['beta2']}: pass e.g. 1.0")
        if not 0 <= group["eta"] < math.inf:
            raise ValueError(f"`eta` must not be negative, got {group['eta']}: pass e.g. 0.1, or 0 to freeze tau")

    def update(self, group: dict[str, Any], block: Block) -> None:
        """See the class docstring."""
        lr, eta, beta1, count = group["lr"], group["eta"], group["beta1"], group["num_data"]
        alpha = _knob(group["temperature"], count) * lr**0.75
        rho, velocity = block.kept("rho"), block.kept("velocity")
        tau = many._foreach_sigmoid(rho)
        if eta:
            block.add_decayed_(rho, tau, group, -eta * alpha**2)
            if alpha:
                many._foreach_addcmul_(rho, block.noise(previous=True), block.gradients, -eta * alpha)
            many._foreach_reciprocal_(tau)
            many._foreach_add_(rho, tau, alpha=eta / count)
            tau = many._foreach_sigmoid(rho)
        many._foreach_mul_(velocity, beta1)
        many._foreach_add_(velocity, block.gradients, alpha=-group["beta2"] * lr)
        block.add_decayed_(velocity, block.weights, group, -group["beta2"] * lr)
        if alpha:
            many._foreach_add_(velocity, block.noise(), alpha=math.sqrt(2 + 2 * beta1**2) * alpha)
        many._foreach_addcmul_(block.weights, tau, velocity)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step; see `Sampler.step`. Float32 parameters on CUDA move in one kernel per group."""
        if not self._all_fused():
            return super().step(closure)
        with torch.enable_grad():
            loss = None if closure is None else closure()
        pieces = sum(len(group["params"]) for group in self.param_groups)
        first = 0
        for number, group in enumerate(self.param_groups):
            self._fused_step(number, group, first, pieces)
            first += len(group["params"])
        return loss

    def _all_fused(self) -> bool:
        """Whether all parameters are dense float32 tensors on CUDA; looked up once per set of groups."""
        if self._fused is None or self._fused[0] != len(self.param_groups):
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            fit = all(p.is_cuda and p.dtype == torch.float32 and _dense(p) for p in parameters)
            self._fused, self._tables = (len(self.param_groups), fit), {}
        return self._fused[1]

    def _fused_step(self, number: int, group: dict[str, Any], first: int, pieces: int) -> None:
        from bayeslim.kernels.cuda.cv_adam import cv_adam_step_, make_table

        used = [(place, p) for place, p in enumerate(group["params"], first) if p.grad is not None and p.numel()]
        if not used:
            return
        for _, parameter in used:
            check_gradient(parameter)
            if parameter.grad.stride() != parameter.stride():
                parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)
        states = [self.counted(parameter) for _, parameter in used]
        latest = max(state["step"] for state in states)
        offsets = [place + (state["step"] - latest) * pieces for (place, _), state in zip(used, states, strict=True)]
        tensors = [
            (p.detach(), p.grad, state["rho"], state["velocity"], state.get("decay"))
            for (_, p), state in zip(used, states, strict=True)
        ]
        key = tuple(0 if one is None else one.data_ptr() for parts in tensors for one in parts) + tuple(offsets)
        table = self._tables.get(number)
        if table is None or table.key != key:
            table = self._tables[number] = make_table(key, tensors, offsets)
        seed = first_seed(group["seed"]) + latest * pieces
        options = {name: group[name] for name in ("lr", "beta1", "beta2", "eta")}
        alpha = _knob(group["temperature"], group["num_data"]) * group["lr"] ** 0.75
        settings = options | {"alpha": alpha, "decay": group["weight_decay"], "count": group["num_data"]}
        cv_adam_step_(table, (seed - pieces, seed), **settings)


def _dense(parameter: Tensor) -> bool:
    return parameter.is_contiguous() or parameter.is_contiguous(memory_format=torch.channels_last)


def _knob(temperature: Temperature, num_data: int) -> float:
    """The number k."""
    if isinstance(temperature, str):
        return num_data**-0.5 if temperature == "posterior" else 1 / num_data
    return float(temperature)
