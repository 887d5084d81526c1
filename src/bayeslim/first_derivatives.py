"""What functions with a gradient of their own have in common: it is that of first order."""

from __future__ import annotations

import torch

__all__ = ["refuse_second_derivatives"]


def refuse_second_derivatives() -> None:
    """Raise in a backward pass with `create_graph`: tensors that were kept do not know what they came from."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "weights drawn together with their KL cannot be differentiated twice: call the network and `prior.kl` "
            "outside `bl.nelbo`"
        )
