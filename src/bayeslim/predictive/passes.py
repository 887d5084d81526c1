"""One pass of several networks: vectorised where torch can follow, started again where the device refuses its size."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as tree

from bayeslim.kernels.context import inside

__all__ = [
    "TOO_LARGE_AT_ALL",
    "Attempt",
    "cannot_vectorise",
    "is_too_large",
    "over_samples",
    "random_state",
    "without_leftovers",
]

NO_BATCHING_RULE = ("vmap", "Batching rule", "functorch", "doesn't have storage")
"""One of these is in every message of torch that says that a function cannot be vectorised."""
REFUSALS = (
    "out of memory",  # CUDA, HIP, MPS
    "not enough memory",  # DefaultCPUAllocator on Windows
    "can't allocate memory",  # and elsewhere
    "ALLOC_FAILED",  # of cuDNN and cuBLAS
    "CUDNN_STATUS_NOT_SUPPORTED",
    "CUDNN_STATUS_BAD_PARAM",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_NOT_SUPPORTED",
    "Unable to find a valid cuDNN algorithm",
    "unable to find an engine",  # of cuDNN
    "canUse32BitIndexMath",
    "INT_MAX",
    "invalid configuration argument",  # more blocks than a grid of CUDA holds
    "could not create a primitive",  # oneDNN
)
"""One of these is in every message by which a device or its libraries refuse a pass that may only be too large."""
TOO_LARGE_AT_ALL = (
    "one example through one network is already more than the device takes: choose a smaller network or smaller "
    "inputs, free memory, move the network to another device, or compute in 16 bits by torch.autocast"
)
"""What to do about it."""
DEPTH = 3
"""How deep containers inside containers are searched for leftovers."""
CONTAINER = (list, tuple, dict)
OF_TORCH = vars(nn.Module()).keys() - {"_buffers"}
"""Attributes of every module that no `forward` writes to."""


def cannot_vectorise(error: RuntimeError) -> bool:
    """Whether `torch.vmap` raised because it cannot follow, not because the function is wrong."""
    return any(word in str(error) for word in NO_BATCHING_RULE)


def is_too_large(error: BaseException | None) -> bool:
    """Whether a device refused for want of memory, or has no kernel for a computation of this size.

    Example:
        >>> is_too_large(RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED")), is_too_large(RuntimeError("no"))
        (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in REFUSALS)


class Attempt:
    """A block that the device may refuse for its size; what follows it then begins with the same random numbers.

    Args:
        device: where the block computes, and may draw.
        final: nothing smaller is left to try, so that a refusal is raised.

    Example:
        >>> for part in (x, x[:50], x[:1]):
        ...     with Attempt(x.device, final=len(part) == 1) as attempt:
        ...         output = model(part)
        ...     if not attempt.refused:
        ...         break
    """

    def __init__(self, device: torch.device, final: bool) -> None:
        self.refused = False
        self.restore = None if final else random_state(device)

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """End the block, and its error too where that is a refusal."""
        if self.restore is not None and is_too_large(error):
            self.refused = True
            self.restore()
        return self.refused


def random_state(device: torch.device) -> Callable[[], None]:
    """A function that brings torch's random numbers of now back, those of the CPU and those of a GPU."""
    state = torch.get_rng_state()
    if device.type != "cuda":
        return lambda: torch.set_rng_state(state)
    own = torch.cuda.get_rng_state(device)

    def restore() -> None:
        torch.set_rng_state(state)
        torch.cuda.set_rng_state(own, device)

    return restore


def over_samples(function: Callable[[Any], Tensor], samples: Any) -> Tensor:
    """Outputs of `function`, samples first: by `torch.vmap`, or by a loop where vmap cannot follow.

    A single sample is a plain call: nothing to vectorise, and faster without.

    Args:
        function: takes one sample.
        samples: tensor, or any nest of lists, tuples and dictionaries of them, with the samples along the first axis.
    """
    count = len(tree.tree_leaves(samples)[0])
    fused = torch.backends.mha.get_fastpath_enabled()
    if count > 1:
        try:
            torch.backends.mha.set_fastpath_enabled(False)
            # Neither this fast path nor the fused kernels have a batching rule.
            with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                # A loop inside torch.vmap is still faster than one around it.
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return torch.vmap(function, randomness="different")(samples)
        except RuntimeError as error:
            if not cannot_vectorise(error):
                raise
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)
    outputs = [function(tree.tree_map(lambda tensor: tensor[i], samples)) for i in range(count)]  # noqa: B023
    return torch.stack(outputs) if count > 1 else outputs[0][None]


@contextmanager
def without_leftovers(model: nn.Module) -> Iterator[None]:
    """Let attributes of modules that are tensors of `torch.vmap` after the block be what they were before it.

    A `forward` that keeps something, such as `self.attention = weights`, keeps a tensor that nothing outside of
    `torch.vmap` can read, copy or store. Such attributes go back, or go away if they were not there; so do lists and
    dictionaries (buffers too) that hold one. Plain tensors stay.

    Args:
        model: the network.

    Example:
        >>> with without_leftovers(model):
        ...     torch.vmap(run, randomness="different")(samples)
    """
    before = {module: vars(module).copy() for module in model.modules()}
    attributes = [item for own in before.values() for item in own.items()]
    kept = _inside([value for name, value in attributes if name not in OF_TORCH and isinstance(value, CONTAINER)])
    held = [(value, value.copy()) for value in kept if isinstance(value, list | dict)]
    try:
        yield
    finally:
        for container, content in held:
            if container and _is_dead(container):
                container.clear()
                (container.update if isinstance(container, dict) else container.extend)(content)
        for module in model.modules():
            own, now = before.get(module, {}), vars(module)
            for name, value in now.copy().items():
                full = isinstance(value, Tensor) or (isinstance(value, CONTAINER) and len(value) > 0)
                if not full or name in OF_TORCH or not _is_dead(value):
                    continue
                if name in own:
                    now[name] = own[name]
                else:
                    del now[name]


def _inside(values: list[Any]) -> list[Any]:
    """Values and what lists, tuples and dictionaries among them hold, `DEPTH` deep."""
    found = level = values
    for _ in range(DEPTH):
        parts = [
            value.values() if isinstance(value, dict) else value for value in level if isinstance(value, CONTAINER)
        ]
        level = [member for part in parts for member in part]
        found = found + level
    return found


def _is_dead(value: Any) -> bool:
    """Whether it is a tensor of `torch.vmap`, or holds one."""
    tensors = [part for part in _inside([value]) if isinstance(part, Tensor)]
    return any(map(inside.is_functorch_wrapped_tensor, tensors))
