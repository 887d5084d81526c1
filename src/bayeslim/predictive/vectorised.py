"""One vectorised pass over many samples, or a loop where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as tree

__all__ = ["ROWS_AT_ONCE", "WEIGHTS_AT_ONCE", "over_samples"]

ROWS_AT_ONCE = 4096
"""Samples times examples that one vectorised pass handles."""
WEIGHTS_AT_ONCE = 2**24
"""Samples times weights that one vectorised pass may hold."""


def over_samples(function: Callable[[Any], Tensor], samples: Any, chunk_size: int | None = None) -> Tensor:
    """Outputs of `function`, samples first: by `torch.vmap`, or by a loop where vmap cannot follow.

    Args:
        function: takes one sample.
        samples: tensor, or dictionary of tensors, with the samples along the first axis.
        chunk_size: samples per pass; None takes all at once.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    try:
        torch.backends.mha.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):  # neither this fast path nor the fused kernels have a batching rule
            return torch.vmap(function, randomness="different", chunk_size=chunk_size)(samples)
    except RuntimeError as error:
        if not any(word in str(error) for word in ("vmap", "Batching rule", "functorch")):
            raise
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
    count = len(tree.tree_leaves(samples)[0])
    return torch.stack([function(tree.tree_map(lambda tensor: tensor[i], samples)) for i in range(count)])  # noqa: B023
