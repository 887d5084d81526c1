"""One vectorised pass over many samples, or a loop where there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as tree

__all__ = ["cannot_vectorise", "over_samples"]

NO_BATCHING_RULE = ("vmap", "Batching rule", "functorch", "doesn't have storage")
"""One of these is in every message of torch that says that a function cannot be vectorised."""


def cannot_vectorise(error: RuntimeError) -> bool:
    """Whether `torch.vmap` raised because it cannot follow, not because the function is wrong."""
    return any(word in str(error) for word in NO_BATCHING_RULE)


def over_samples(function: Callable[[Any], Tensor], samples: Any) -> Tensor:
    """Outputs of `function`, samples first: by `torch.vmap`, or by a loop where vmap cannot follow.

    A single sample is a plain call: nothing to vectorise, and faster without.

    Args:
        function: takes one sample.
        samples: tensor, or list or dictionary of tensors, with the samples along the first axis.
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
