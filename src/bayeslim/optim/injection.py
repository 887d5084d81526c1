"""What the samplers share: checked steps, and injected noise that follows from (seed, step) alone."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bayeslim.checks.counts import check_num_data
from bayeslim.kernels.noise import looked_up_normal
from bayeslim.runtime.seeds import check_seed, derived_seed

__all__ = ["Block", "Sampler", "check_gradient", "first_seed", "many"]

many: Any = torch
"""Where torch keeps its operations on lists of tensors, which its type stubs leave out: `many._foreach_add_`."""

BLOCK = 2**18
"""Numbers that are updated at a time on the CPU: all that one needs for them stays in its cache."""


@dataclass
class Block:
    """Pieces of parameters that are updated together; every list has one entry per piece."""

    weights: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    state: list[dict[str, Tensor]] = field(default_factory=list)
    decay: list[Tensor | None] = field(default_factory=list)
    """Elementwise weight decay, or None for that of the group."""
    seeds: list[tuple[int, int]] = field(default_factory=list)
    """Seeds of the noise of the step before and of this step."""

    def kept(self, name: str) -> list[Tensor]:
        """One state tensor of every piece."""
        return [state[name] for state in self.state]

    def noise(self, previous: bool = False) -> list[Tensor]:
        """Standard normal numbers of this step, or the same as were drawn in the step before."""
        return [_normal(w, seeds[0 if previous else 1]) for w, seeds in zip(self.weights, self.seeds, strict=True)]

    def add_decayed_(self, target: list[Tensor], values: list[Tensor], group: dict[str, Any], factor: float) -> None:
        """`target += factor * decay * values`, with the elementwise decay where there is one."""
        if all(decay is None for decay in self.decay):
            if group["weight_decay"] * factor:
                many._foreach_add_(target, values, alpha=factor * group["weight_decay"])
            return
        for sums, decay, value in zip(target, self.decay, values, strict=True):
            if decay is None:
                sums.add_(value, alpha=factor * group["weight_decay"])
            else:
                sums.addcmul_(decay, value, value=factor)


class Sampler(torch.optim.Optimizer, ABC):
    """A torch optimiser that adds noise; subclasses say how one block of weights moves.

    The noise of a piece of a parameter in its step `t` is a function of (`seed`, `t`, place) alone. No random
    state is stored, a run resumed from `state_dict` goes on bit for bit, and the ranks of a data-parallel run,
    which hold the same seed, add the same noise and keep the same weights.

    On the CPU, where torch's normal numbers cost more than all the rest, it is that of `noise.looked_up_normal`:
    variance exactly 1, fourth moment 2.9998 instead of 3, nothing beyond 4.39. Means and covariances of linear
    recursions are the same with it. Other devices draw torch's own.

    Args:
        params: parameters or groups, as for any torch optimiser.
        defaults: options with `lr`, `num_data`, `weight_decay`, `temperature`, `seed`.
    """

    state_names: tuple[str, ...] = ()
    """Tensors kept per parameter, zero at first."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with options of its own; see `torch.optim.Optimizer`."""
        group = self.defaults | param_group
        self.check_group(group)
        plain = {"seed": check_seed(group["seed"]), "num_data": check_num_data(group["num_data"])}
        super().add_param_group(param_group | plain)
        for parameter in self.param_groups[-1]["params"]:
            if not parameter.is_floating_point():
                self.param_groups.pop()
                raise TypeError(f"`params` must be real floating-point tensors, got {parameter.dtype}")

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options that make no sense."""
        count, lr, decay, temperature = (group[k] for k in ("num_data", "lr", "weight_decay", "temperature"))
        check_num_data(count)
        if not 0 < lr < math.inf:
            raise ValueError(f"`lr` must be positive, got {lr}: pass e.g. 0.1")
        if not 0 <= decay < math.inf:
            raise ValueError(f"`weight_decay` must not be negative, got {decay}: pass prior precision / num_data")
        if isinstance(temperature, str) or not 0 <= temperature < math.inf:
            raise ValueError(f"`temperature` must not be negative, got {temperature!r}: 0 adds no noise")
        check_seed(group["seed"])

    @abstractmethod
    def update(self, group: dict[str, Any], block: Block) -> None:
        """Move the weights of `block` and their state, in place."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step.

        Parameters without a gradient keep their value and their step count.

        Args:
            closure: evaluates the loss and its gradients anew.

        Returns:
            What the closure gave.

        Raises:
            TypeError: for sparse gradients.
            FloatingPointError: for gradients that are not finite (looked for on the CPU only: elsewhere the
                look would wait for the device). Parameters and state are then as they were.
        """
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                check_gradient(parameter)
        for group, block in self._blocks():
            stored = block.weights
            block.weights = [w.to(_working_type(w)) for w in stored]
            block.gradients = [g.to(_working_type(g)) for g in block.gradients]
            self.update(group, block)
            for own, new in zip(stored, block.weights, strict=True):
                if own is not new:  # half precision is updated in float32
                    own.copy_(new)
        return loss

    def set_weight_decay_(self, parameter: Tensor, decay: Tensor | None) -> None:
        """Give every element of one parameter its own weight decay instead of the group's; None takes it back.

        It is part of the optimiser's state, so checkpoints carry it.

        Args:
            parameter: one of the optimiser's.
            decay: not negative, in the shape of `parameter`.

        Example:
            >>> optimizer.set_weight_decay_(layer.weight, torch.where(mask, 1e-4, 1e-2))
        """
        if not any(parameter is own for group in self.param_groups for own in group["params"]):
            raise ValueError("`parameter` does not belong to this optimiser: pass one of its parameters")
        if decay is None:
            self.state[parameter].pop("decay", None)
            return
        if decay.shape != parameter.shape or not bool((decay >= 0).all()):
            raise ValueError(
                f"`decay` must have no negative entries and shape {tuple(parameter.shape)}, got shape "
                f"{tuple(decay.shape)}: pass one number per weight"
            )
        self.state[parameter]["decay"] = decay.detach().to(parameter.device, _working_type(parameter), copy=True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; unlike torch's own, tensors keep their type, so that half-precision runs resume exactly."""
        super().load_state_dict(state_dict)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for number, parameter in zip(numbers, parameters, strict=True):
            for name, value in state_dict["state"].get(number, {}).items():
                if isinstance(value, Tensor) and name in self.state[parameter]:  # a hook may have taken others out
                    self.state[parameter][name] = value.detach().to(parameter.device, copy=True)

    def _blocks(self) -> Iterator[tuple[dict[str, Any], Block]]:
        """Cut all parameters into blocks, and count their steps."""
        pieces = sum(len(_cut(p, p)) for group in self.param_groups for p in group["params"])
        number = 0
        for group in self.param_groups:
            block, size = Block(), 0
            for parameter in group["params"]:
                first, number = number, number + len(_cut(parameter, parameter))
                if parameter.grad is None or parameter.numel() == 0:
                    continue
                state = self.counted(parameter)
                start = first_seed(group["seed"]) + state["step"] * pieces + first
                gradient = _cut(parameter.grad, parameter)
                kept = {name: _cut(state[name], parameter) for name in (*self.state_names, "decay") if name in state}
                for i, piece in enumerate(_cut(parameter.detach(), parameter)):
                    if size and size + piece.numel() > BLOCK and piece.is_cpu:
                        yield group, block
                        block, size = Block(), 0
                    size += piece.numel()
                    block.weights.append(piece)
                    block.gradients.append(gradient[i])
                    block.state.append({name: kept[name][i] for name in self.state_names})
                    block.decay.append(kept["decay"][i] if "decay" in kept else None)
                    block.seeds.append((start + i - pieces, start + i))
            if size:
                yield group, block

    def counted(self, parameter: Tensor) -> dict[str, Any]:
        """The state of a parameter, made if need be, with its step counted."""
        state = self.state[parameter]
        for name in self.state_names:
            if name not in state:
                state[name] = torch.zeros_like(parameter, dtype=_working_type(parameter))
        state["step"] = state.get("step", 0) + 1
        return state


def check_gradient(parameter: Tensor) -> None:
    """Raise for a gradient that no step can use; see `Sampler.step`."""
    gradient = parameter.grad
    if gradient is None:
        return
    if gradient.layout != torch.strided:
        raise TypeError(f"gradients must be dense, got {gradient.layout}: use nn.Embedding(sparse=False)")
    if gradient.is_cpu and not math.isfinite(gradient.sum()) and not bool(gradient.isfinite().all()):
        raise FloatingPointError(
            f"a gradient of shape {tuple(gradient.shape)} is not finite; the parameters are as they were: lower `lr` "
            "or clip the gradients"
        )


def _working_type(tensor: Tensor) -> torch.dtype:
    """Increments of the state are far below the resolution of half precision."""
    return torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype


def _cut(tensor: Tensor, parameter: Tensor) -> tuple[Tensor, ...]:
    """Views of whole rows, of about `BLOCK` numbers on the CPU, the same for all tensors of a parameter."""
    tensor = torch.atleast_1d(tensor)
    if not parameter.is_cpu or parameter.numel() <= BLOCK:
        return (tensor,)
    return tensor.split(max(1, BLOCK * len(tensor) // parameter.numel()))


@functools.cache
def first_seed(seed: int) -> int:
    """Where the seeds of a run begin."""
    return derived_seed(seed)


def _normal(like: Tensor, seed: int) -> Tensor:
    """Standard normal numbers in the shape and type of `like`, a function of the seed; see `Sampler`."""
    if like.is_cpu:
        return looked_up_normal(seed, like.shape, like.dtype)
    generator = torch.Generator(like.device).manual_seed(seed % 2**64)
    return torch.empty(like.shape, dtype=like.dtype, device=like.device).normal_(generator=generator)
