"""The plain torch network that every export starts from, and its weights in one plain file."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors.torch import save as serialise
from torch import Tensor, nn

from bayeslim.checks.networks import check_network
from bayeslim.collapse import collapse_
from bayeslim.predictive.inputs import as_tensor, float_type_of, refusal
from bayeslim.storage import write_atomically
from bayeslim.surgery import copied

__all__ = ["example_batch", "export_torch", "mean_network"]


def mean_network(model: nn.Module) -> nn.Module:
    """A copy of `model` on the CPU, in evaluation mode, with every Bayesian layer at its posterior mean.

    Args:
        model: network, Bayesian or not; left as it is.

    Example:
        >>> plain = mean_network(model)
    """
    check_network(model, "export")
    return collapse_(copied(model)).cpu().eval()


def export_torch(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """Write the mean network's weights as plain safetensors, for a process that has never heard of bayeslim.

    The file holds the `state_dict` of the collapsed network: the names that the plain network had before
    `bayesianize_`, dense, in their own type, with no metadata.

    Args:
        model: network, Bayesian or not; left as it is.
        path: the file, usually `*.safetensors`; replaced atomically.

    Returns:
        The plain network whose weights were written, in evaluation mode.

    Raises:
        OSError: if the file cannot be written.

    Example:
        >>> export_torch(model, "plain.safetensors")
        >>> net.load_state_dict(safetensors.torch.load_file("plain.safetensors"))  # bayeslim not needed
    """
    plain = mean_network(model)
    state = {name: tensor.detach().contiguous().clone() for name, tensor in plain.state_dict().items()}
    write_atomically(Path(path), serialise(state))
    return plain


@torch.no_grad()
def example_batch(plain: nn.Module, example: Tensor) -> Tensor:
    """`example` as a batch of at least two rows that `plain` accepts and answers with one tensor.

    Two rows, because tracing takes an axis of size one for a constant.

    Raises:
        TypeError: if `example` is not numbers, or the network returns something else than one tensor.
        ValueError: if the network does not accept it.
    """
    x = as_tensor("example", example, float_type_of(plain)).detach().cpu()
    x = x if len(x) > 1 else x.repeat(2, *[1] * (x.ndim - 1))
    try:
        output = plain(x)
    except RuntimeError as error:
        raise refusal(x, error) from error
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the network must return one tensor to be exported, got {type(output).__name__}: wrap it in a module "
            "that returns the part you need"
        )
    if output.ndim == 0 or len(output) != len(x):
        raise ValueError(
            f"the network must answer {len(x)} examples with {len(x)} rows, got shape {tuple(output.shape)}: put the "
            "batch first"
        )
    return x
