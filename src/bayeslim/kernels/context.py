"""What surrounds a call: the device, autocast, who follows the code, and the objective that collects KLs.

Nothing else asks torch for any of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import Function

__all__ = [
    "Collection",
    "Context",
    "NormalPrior",
    "applied",
    "collecting",
    "inside",
    "may_be_followed",
    "may_want_higher_derivatives",
    "now",
    "reference",
    "refuse_second_derivatives",
    "transforms",
]

inside: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
"""What torch knows about its own transforms, such as `torch.vmap`."""

ONLY_REFERENCE = [os.environ.get("BAYESLIM_KERNELS", "").lower() == "reference"]
"""Whether fast paths are switched off; the last entry counts."""


class NormalPrior(NamedTuple):
    """One normal distribution for all weights."""

    mean: float
    std: float


@dataclass(frozen=True)
class Collection:
    """The KLs that an objective collects where weights are used: one pass over their parameters serves the two.

    A draw, or the variance, of every weight is needed, and its KL. Each alone reads all parameters again.
    """

    priors: Mapping[object, NormalPrior]
    """A normal prior, by posterior."""
    found: dict[object, Tensor]
    """The KLs so far, by posterior, whole or in parts to be summed."""
    seeds: dict[torch.device, list[Tensor]] = field(default_factory=dict)
    rows_of_ones: dict[tuple[int, torch.dtype, torch.device], Tensor] = field(default_factory=dict)

    def prior_of(self, posterior: object) -> NormalPrior | None:
        """The prior, if nobody has left this KL yet."""
        return None if posterior in self.found else self.priors.get(posterior)

    def seed(self, device: torch.device) -> Tensor:
        """A random number for a kernel, and another that aligns them; one launch draws those of all posteriors."""
        if device not in self.seeds:
            self.seeds[device] = list(torch.randint(2**62, (len(self.priors), 2), device=device).unbind())
        return self.seeds[device].pop()

    def ones(self, x: Tensor) -> Tensor:
        """(1, rows) ones in the type of `x` (rows, in), the same for all layers of a batch."""
        kind = len(x), x.dtype, x.device
        if kind not in self.rows_of_ones:
            self.rows_of_ones[kind] = x.new_ones(1, len(x))
        return self.rows_of_ones[kind]


_current: ContextVar[Collection | None] = ContextVar("current", default=None)
_traced: list[Collection] = []
"""The collections around code that a compiler traces: it cannot follow a ContextVar."""


class Context(NamedTuple):
    """The surroundings of one call of a kernel."""

    device: str
    """The kind of device, such as "cpu"."""
    compiling: bool
    """Whether `torch.compile` follows the code; an exporter does not count, which wants plain operations."""
    recorded: bool
    """Whether somebody writes down which functions of torch run: a compiler, an exporter, a tracer or a mode."""
    transformed: bool
    """Whether the code runs inside `torch.vmap`, `torch.func.grad` or their kin."""
    autocast: torch.dtype | None
    """The type of autocast on this device, where it is on."""
    recomputed: bool
    """Whether tensors kept for the backward pass are packed away, or computed again outside of the objective."""
    only_reference: bool
    """Whether fast paths are switched off."""
    collection: Collection | None
    """What the objective around this call collects."""


def now(tensor: Tensor) -> Context:
    """The surroundings of a call with this tensor.

    Example:
        >>> now(torch.zeros(1)).compiling
        False
    """
    kind, followed = tensor.device.type, torch.compiler.is_compiling()
    return Context(
        kind,
        # Not `torch.compiler.is_exporting()`, which torch 2.11 answers by True in everything that it compiles.
        followed and not torch.compiler._is_exporting_flag,
        followed or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0,
        torch._C._are_functorch_transforms_active() or (not followed and forward_ad._current_level >= 0),
        torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else None,
        not followed and torch._C._autograd._top_saved_tensors_default_hooks(False) is not None,  # pyright: ignore
        ONLY_REFERENCE[-1],
        (_traced[-1] if _traced else None) if followed else _current.get(),
    )


def collecting(
    priors: Mapping[object, NormalPrior], found: dict[object, Tensor], like: Tensor
) -> AbstractContextManager[None]:
    """Collect in `found` the KL of every posterior in `priors` that is used inside the block.

    Nothing is collected in compiled code on a CPU, where a compiler joins the passes by itself.

    Args:
        priors: a normal prior, by posterior.
        found: takes the KLs, by posterior.
        like: a tensor on the device of the network.
    """
    followed = torch.compiler.is_compiling()
    if followed and not like.is_cuda:
        return nullcontext()  # a compiler could not leave another where it gives up on a network's code
    return _collecting(Collection(priors, found), followed)


@contextmanager
def _collecting(collection: Collection, followed: bool) -> Iterator[None]:
    if followed:
        _traced.append(collection)
        try:
            yield
        finally:
            _traced.pop()
        return
    token = _current.set(collection)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def reference() -> Iterator[None]:
    """Compute everything by the plain definitions of `kernels.reference` inside the block.

    The environment variable `BAYESLIM_KERNELS=reference` does so for a whole process.

    Example:
        >>> with reference():
        ...     y = model(x)
    """
    ONLY_REFERENCE.append(True)
    try:
        yield
    finally:
        ONLY_REFERENCE.pop()


def transforms() -> list[Any]:
    """The transforms of torch around this code, the innermost last; a compiler sees none."""
    return [] if torch.compiler.is_compiling() else inside.get_interpreter_stack() or []


def may_be_followed() -> bool:
    """Whether a compiler or a transform looks at this code, so that the values in a tensor cannot be read."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def may_want_higher_derivatives() -> bool:
    """Whether `torch.func.grad` or one of its kin is around this code."""
    return any(level.key() == inside.TransformType.Grad for level in transforms())


def applied(function: type[Function], *arguments: Any) -> Any:
    """`function.apply(*arguments)`, for functions that torch.vmap can follow too, in less time where nothing does.

    In every call of a function with `setup_context` torch inspects the signature of `forward`, for the sake of
    defaults: 30 to 60 us, as much as many a layer takes. Here all arguments are given.
    """
    if may_be_followed():
        return function.apply(*arguments)
    plain: Any = super(Function, function)
    return plain.apply(*arguments)


def refuse_second_derivatives() -> None:
    """Raise in a backward pass with `create_graph`: tensors that were kept do not know what they came from."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "weights drawn together with their KL cannot be differentiated twice: call the network and `prior.kl` "
            "outside `bl.nelbo`"
        )
