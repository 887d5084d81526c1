"""Networks of one architecture as one stack, whose members are all updated by one step."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayeslim.estimators import Estimator
from bayeslim.kl import kl as current_kl
from bayeslim.likelihoods.base import Likelihood
from bayeslim.ops import Op
from bayeslim.optim.param_groups import param_groups
from bayeslim.predictive.inputs import device_of
from bayeslim.predictive.passes import cannot_vectorise
from bayeslim.training.batches import single_rows_explained
from bayeslim.training.compiling import compiled
from bayeslim.training.elbo import KLScaling, Nelbo, nelbo
from bayeslim.training.replay import ReplayedUpdates, allow_plain_steps_

__all__ = ["Objective", "Stack", "StackStepper", "check_alike"]

FEW_WEIGHTS = 2**17
"""Size of a member above which, on a CPU, one after the other is faster than all at once, which is too big for caches.
Measured for eight perceptrons on one core: 64-64-10 takes half as long at once, 784-100-10 as long, 784-300-100-10
1.0 to 1.4 times as long; five LeNet-5, as grouped convolutions, 1.2 to 1.8 times."""


class Objective(nn.Module):
    """`bl.nelbo` of one network as a module: its state is the network's and the likelihood's."""

    def __init__(self, model: nn.Module, likelihood: Likelihood, num_data: int, kl_scaling: KLScaling = "elbo") -> None:
        super().__init__()
        self.model, self.likelihood = model, likelihood
        self.num_data, self.kl_scaling = num_data, kl_scaling

    def forward(self, x: Tensor, y: Tensor, beta: Tensor, kl: bool = True) -> Nelbo:
        """The loss of one batch and its parts; without `kl` that of `beta = 0`, and the KL is NaN."""
        fixed: dict[str, Any] = {"num_data": self.num_data, "kl_scaling": self.kl_scaling, "with_kl": kl}
        return nelbo(self.model, x, y, likelihood=self.likelihood, beta=beta if kl else 0.0, **fixed)


class Stack:
    """Parameters and buffers of modules of one architecture, stacked along a new first axis.

    As long as the stack exists the members' own tensors are views of it: what changes here changes there at once,
    and the other way round. `release_` gives each member memory of its own again.

    Args:
        members: the modules; where the stack is vectorised the first one's code is run for all.
        vectorised: run all members at once by `torch.vmap`, or one after the other; None does what is faster, and
            a stack that vmap cannot follow goes on with one after the other.
        compile: compute losses with a KL by `torch.compile`. (Without the KL some parameters have no gradient;
            compiled code would give them zeros, which advance Adam.)

    Example:
        >>> stack = Stack([Objective(model, bl.Categorical(), num_data=60_000) for model in models])
        >>> stack(x, y, torch.ones(len(models))).loss.shape  # x: (networks, batch, ...)
        torch.Size([14])
    """

    def __init__(self, members: Sequence[Objective], vectorised: bool | None = None, *, compile: bool = False) -> None:
        self.members = list(members)
        device = device_of(self.members[0])
        self.at_once = compiled(_at_once, device) if compile else _at_once
        self.one_by_one: list[Callable[..., Nelbo]] = [*self.members]
        if compile:  # the first one's code serves all, so that it is compiled once
            alone = functools.partial(compiled(_alone, device), self.members[0])
            self.one_by_one = [functools.partial(alone, _named_tensors(member)) for member in self.members]
        self.tensors: dict[str, Tensor] = {}
        self.parts: dict[str, list[Tensor]] = {}
        for name in _named_tensors(self.members[0]):
            parts = [_named_tensors(member)[name] for member in self.members]
            whole = torch.stack([part.detach() for part in parts])
            for part, view in zip(parts, whole.unbind(), strict=True):
                part.data = view
            self.tensors[name], self.parts[name] = whole.requires_grad_(parts[0].requires_grad), parts
        few = sum(tensor[0].numel() for tensor in self.tensors.values()) <= FEW_WEIGHTS
        faster = few or device.type != "cpu"
        self.vectorised = faster if vectorised is None else vectorised

    def set_gradients_(self, x: Tensor, y: Tensor, beta: Tensor, kl: bool = True) -> Nelbo:
        """Give every parameter the gradient of its member's loss (None if it has no part in it); return the losses."""
        result = self(x, y, beta, kl)
        names = [name for name, tensor in self.tensors.items() if tensor.requires_grad]
        of = [self.tensors[name] for name in names] if self.vectorised else self._members_own(names)
        gradients = torch.autograd.grad(result.loss.sum(), of, allow_unused=True)
        # Fused optimisers want the parameter's own memory layout.
        gradients = [None if gradient is None else gradient.contiguous() for gradient in gradients]
        if self.vectorised:
            nothing = (None,) * len(self.members)
            gradients = chain(*(nothing if whole is None else whole.unbind() for whole in gradients))
        for parameter, gradient in zip(self._members_own(names), gradients, strict=True):
            parameter.grad = gradient
        return Nelbo(*(part.detach() for part in result))

    def __call__(self, x: Tensor, y: Tensor, beta: Tensor, kl: bool = True) -> Nelbo:
        """Every member's loss on its own batch, noise drawn independently.

        Args:
            x: (members, batch, ...).
            y: (members, batch, ...).
            beta: (members,).
            kl: see `Objective`.
        """
        if self.vectorised:
            try:
                with sdpa_kernel(SDPBackend.MATH):  # the fused kernels of attention have no batching rule
                    return (self.at_once if kl else _at_once)(self.members[0], self.tensors, x, y, beta, kl)
            except RuntimeError as error:
                if not cannot_vectorise(error):
                    raise
                self.vectorised = False
        losses = self.one_by_one if kl else self.members
        results = [loss(*own, kl) for loss, *own in zip(losses, x, y, beta, strict=True)]
        return Nelbo(*map(torch.stack, zip(*results, strict=True)))

    def _members_own(self, names: Sequence[str]) -> list[Tensor]:
        return [part for name in names for part in self.parts[name]]

    def finite(self) -> Tensor:
        """(members,): whether all parameters are finite."""
        trained = [tensor.detach() for tensor in self.tensors.values() if tensor.requires_grad]
        return torch.stack([tensor.reshape(len(tensor), -1).isfinite().all(1) for tensor in trained]).all(0)

    def release_(self) -> None:
        """Give every member memory of its own, holding what the stack holds now."""
        for part in chain.from_iterable(self.parts.values()):
            part.data, part.grad = part.detach().clone(), None


class StackStepper:
    """Adam on the stack of all members, and the sums of their losses over the rows of an epoch.

    On CUDA each kind of step (size of the batch, KL on or off, phase) becomes one CUDA graph after its first runs.

    Args:
        members: what to train; `release_` ends it.
        x: all inputs, on the members' device.
        y: all targets, ditto.
        lr: learning rate of each member.
        scale_lr: another one for the scales of all posteriors; None takes `lr`.
        vectorised: see `Stack`.
        compile: ditto.
    """

    def __init__(
        self,
        members: Sequence[Objective],
        x: Tensor,
        y: Tensor,
        *,
        lr: Sequence[float],
        scale_lr: float | None = None,
        vectorised: bool | None = None,
        compile: bool = False,
    ) -> None:
        rates: dict[float, list[nn.Parameter]] = {}
        for member, own in zip(members, lr, strict=True):
            for group in param_groups(member, lr=own, scale_lr=scale_lr):
                rates.setdefault(group["lr"], []).extend(group["params"])
        if not rates:
            raise ValueError("`models` have no parameters that require gradients: there is nothing to train")
        self.stack, self.x, self.y = Stack(members, vectorised, compile=compile), x, y
        # A graph reads its settings from fixed places: the optimiser's learning rates are views of `lrs`.
        self.base_lrs = torch.tensor(list(rates), device=x.device)
        self.lrs = self.base_lrs.clone()
        groups = [{"params": members, "lr": lr} for members, lr in zip(rates.values(), self.lrs, strict=True)]
        self.optimizer = torch.optim.Adam(groups, fused=True, capturable=x.is_cuda)
        allow_plain_steps_(self.optimizer)
        self.beta = torch.zeros(len(lr), device=x.device)
        self.sums = torch.zeros(4, len(lr), dtype=torch.float64, device=x.device)
        self.rows = 0
        self.updates = ReplayedUpdates(self._step, x.device)

    def step(self, rows: Tensor, beta: Tensor, lr_factor: Tensor, *, kl: bool = True, phase: str = "bayes") -> None:
        """Update every member once.

        Args:
            rows: (members, batch) which examples each member sees.
            beta: (members,) weights of the KL.
            lr_factor: scalar, on all learning rates.
            kl: False leaves the KL out of the loss, whatever `beta` is.
            phase: what else distinguishes this step from others, such as the estimator in use.
        """
        self.beta.copy_(beta)
        torch.mul(self.base_lrs, lr_factor, out=self.lrs)
        with single_rows_explained():
            self.updates(rows, kl=kl, phase=phase)
        self.rows += rows.shape[1]

    def epoch_summary(self) -> list[dict[str, float]]:
        """Each member's averages of energy (the loss), nll and kl since the last call.

        A batch counts by its rows. Where no step of a member needed the KL it is that of now.
        """
        *sums, with_kl = self.sums.tolist()
        found: list[dict[str, float]] = []
        for member, energy, nll, divergence, rows in zip(self.stack.members, *sums, with_kl, strict=True):
            with torch.no_grad():
                average = divergence / rows if rows else current_kl(member.model).item()
            found.append({"energy": energy / self.rows, "nll": nll / self.rows, "kl": average})
        self.sums.zero_()
        self.rows = 0
        return found

    def release_(self) -> None:
        """Give every member memory of its own again, and free that of the graphs."""
        self.updates.forget()
        self.stack.release_()

    def _step(self, rows: Tensor, *, kl: bool, phase: str) -> Tensor:
        result = self.stack.set_gradients_(self.x[rows], self.y[rows], self.beta, kl)
        self.optimizer.step()
        needed = (self.beta > 0) & kl
        divergence = result.kl.masked_fill(~needed, 0)
        return self.sums.add_(torch.stack([result.loss, result.nll, divergence, needed]), alpha=rows.shape[1])


def check_alike(models: Sequence[nn.Module]) -> None:
    """Raise unless the networks are of one architecture: modules, their settings, names and shapes of all tensors.

    Raises:
        ValueError: naming the first difference.
    """
    wanted = _architecture(models[0])
    for number, model in enumerate(models[1:], 1):
        found = _architecture(model)
        for key in chain(wanted, found):
            first, own = wanted.get(key, "absent"), found.get(key, "absent")
            if first != own:
                raise ValueError(
                    f"`models` must be of one architecture: {key} is {first} in models[0] but {own} in "
                    f"models[{number}]; train them in separate calls"
                )


def _architecture(model: nn.Module) -> dict[str, Any]:
    """What two networks must have in common for one to run with the other's tensors."""
    facts: dict[str, Any] = {}
    plain = (bool, int, float, str, tuple, type(None), Op, Estimator, types.FunctionType)
    for name, module in model.named_modules():
        facts[f"the type of {name or 'the network'}"] = type(module).__qualname__
        for key, value in vars(module).items():
            if not key.startswith("_") and isinstance(value, plain):
                if isinstance(value, types.FunctionType) or (isinstance(value, Estimator) and not vars(value)):
                    value = value.__name__
                facts[f"{name}.{key}".lstrip(".")] = value
    for name, tensor in _named_tensors(model).items():
        kind = "trained" if tensor.requires_grad else "fixed"
        facts[name] = f"{kind} {tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"
    return facts


def _alone(code: Objective, tensors: Mapping[str, Tensor], x: Tensor, y: Tensor, beta: Tensor, kl: bool) -> Nelbo:
    return functional_call(code, dict(tensors), (x, y, beta, kl))


def _at_once(code: Objective, tensors: Mapping[str, Tensor], x: Tensor, y: Tensor, beta: Tensor, kl: bool) -> Nelbo:
    own = functools.partial(_alone, code, kl=kl)
    return torch.vmap(own, randomness="different")(tensors, x, y, beta)


def _named_tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(chain(module.named_parameters(), module.named_buffers()))
