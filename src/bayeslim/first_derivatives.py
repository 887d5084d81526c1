"""What functions with a gradient of their own have in common: it is that of first order."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import Function

__all__ = ["applied", "refuse_second_derivatives"]


def applied(function: type[Function], *arguments: Any) -> Any:
    """`function.apply(*arguments)`, for functions that torch.vmap can follow too, in less time where nothing does.

    In every call of a function with `setup_context` torch inspects the signature of `forward`, for the sake of
    defaults: 30 to 60 us, as much as many a layer takes. Here all arguments are given.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
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
