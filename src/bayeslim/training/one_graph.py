"""A whole update on a CPU, from the batch to Adam's step, as one compiled function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayeslim.likelihoods.base import Likelihood
from bayeslim.training.compiling import compiled
from bayeslim.training.elbo import Nelbo, nelbo

__all__ = ["OneGraph", "fits_one_graph"]

PLAIN = {"weight_decay": 0, "amsgrad": False, "maximize": False, "capturable": False, "differentiable": False}
"""What `OneGraph` can do of Adam's options."""
ONE = torch.ones((), device="cpu")
"""Added as a tensor, which takes a third of the time that a number takes."""


def fits_one_graph(model: nn.Module, likelihood: Likelihood, optimizer: torch.optim.Optimizer) -> bool:
    """Whether an update is what `OneGraph` computes: on a CPU, by plain Adam, with nobody else looking at gradients."""
    options = [{name: group.get(name) for name in PLAIN} for group in optimizer.param_groups]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    hooks: list[Any] = [optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks]
    hooks += [hook for p in parameters for hook in (p._backward_hooks, p._post_accumulate_grad_hooks)]
    hooks += [
        hook
        for part in (model, likelihood)
        for module in part.modules()
        for hook in (module._backward_hooks, module._backward_pre_hooks)
    ]
    return (
        type(optimizer) is torch.optim.Adam
        and "step" not in vars(optimizer)  # somebody does more
        and all(found == PLAIN for found in options)
        and all(isinstance(group["lr"], float | int) for group in optimizer.param_groups)
        and all(p.device.type == "cpu" and p.is_floating_point() for p in parameters)
        and not any(p.ndim == 0 and p.dtype == torch.float64 for p in parameters)  # torch 2.13 loses what these become
        and not any(hooks)
    )


class OneGraph:
    r"""Loss, gradients and Adam's step of one batch as one function under `torch.compile`.

    Compiled apart, the three hand each other everything through memory and Python: for small networks that is most of a
    step. The update is that of `torch.optim.Adam`, whose state it reads and writes, but for rounding: for the gradient
    `g` of step `t`, `m <- m + (1 - b1) (g - m)`, `v <- b2 v + (1 - b2) g^2` and
    `w <- w - lr / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps)`. A parameter without a part in the loss stays as it is,
    and so do all if the loss is not finite. Gradients are left nowhere.

    Args:
        model: the network.
        likelihood: `p(y | f)`.
        optimizer: one that `fits_one_graph`.
        settings: further arguments of `bl.nelbo`.

    Example:
        >>> update = OneGraph(model, bl.Categorical(), torch.optim.Adam(model.parameters()), num_data=60_000)
        >>> update(x, y, beta=torch.ones(()), with_kl=True).loss
    """

    def __init__(
        self, model: nn.Module, likelihood: Likelihood, optimizer: torch.optim.Optimizer, **settings: Any
    ) -> None:
        from torch._dynamo.exc import (  # nobody else waits for their import
            FailOnRecompileLimitHit,
            TorchDynamoException,
        )

        self.model, self.likelihood, self.optimizer, self.settings = model, likelihood, optimizer, settings
        self.refusals = TorchDynamoException, FailOnRecompileLimitHit
        self.update = compiled(_update, torch.device("cpu"), whole=True)

    def __call__(self, x: Tensor, y: Tensor, *, beta: float | Tensor, with_kl: bool) -> Nelbo | None:
        """Update once and return the loss of before; None, and nothing has changed, if that is no single graph."""
        members = [(p, group) for group in self.optimizer.param_groups for p in group["params"]]
        parameters, groups = zip(*members, strict=True)
        states = [self._state(p) for p in parameters]
        sizes = [_step_sizes(group, state["step"].item() + 1) for group, state in zip(groups, states, strict=True)]
        moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        constants = [(*group["betas"], group["eps"]) for group in groups]
        batch = self.model, self.likelihood, x, y, beta, {"with_kl": with_kl, **self.settings}
        try:
            result, used = self.update(
                *batch, parameters, *moments, torch.tensor(sizes, dtype=torch.float64), constants
            )
        except self.refusals:
            return None
        for parameter in parameters:
            parameter.grad = None
        for state in itertools.compress(states, used):
            state["step"].add_(ONE)
        return result

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """That of Adam, begun as it does."""
        state = self.optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, requires_grad=False)
            state["exp_avg_sq"] = torch.zeros_like(parameter, requires_grad=False)
        return state


def _step_sizes(group: dict[str, Any], step: float) -> tuple[float, float]:
    """The factors on `m` and on `sqrt(v)` of a group's step of this number."""
    first, second = group["betas"]
    return group["lr"] / (1 - first**step), 1 / math.sqrt(1 - second**step)


def _update(
    model: nn.Module,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    beta: float | Tensor,
    settings: dict[str, Any],
    parameters: Sequence[Tensor],
    means: Sequence[Tensor],
    squares: Sequence[Tensor],
    sizes: Tensor,
    constants: Sequence[tuple[float, float, float]],
) -> tuple[Nelbo, list[bool]]:
    """The update itself; returns the loss and which parameters had a part in it."""
    result = nelbo(model, x, y, likelihood=likelihood, beta=beta, **settings)
    gradients = torch.autograd.grad(result.loss, parameters, allow_unused=True)
    with torch.no_grad():
        finite = result.loss.isfinite()
        for i, gradient in enumerate(gradients):
            if gradient is None:
                continue
            parameter, mean, square, (first, second, eps) = parameters[i], means[i], squares[i], constants[i]
            new_mean = torch.lerp(mean, gradient, 1 - first)
            new_square = square * second + (1 - second) * gradient * gradient
            new = parameter - sizes[i, 0] * new_mean / (new_square.sqrt() * sizes[i, 1] + eps)
            mean.copy_(torch.where(finite, new_mean, mean))
            square.copy_(torch.where(finite, new_square, square))
            parameter.copy_(torch.where(finite, new, parameter))
    return Nelbo(*(part.detach() for part in result)), [gradient is not None for gradient in gradients]
