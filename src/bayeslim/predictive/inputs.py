"""Inputs for prediction, as batches on the right device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bayeslim.checks.counts import check_counts
from bayeslim.gaussian import Gaussian

__all__ = [
    "ONE_INPUT",
    "Inputs",
    "as_tensor",
    "device_of",
    "float_type_of",
    "input_batches",
    "is_about_inputs",
    "one_input",
    "one_tensor",
    "pair_of",
    "per_example",
    "realised",
    "refusal",
]

ONE_INPUT = (
    "a network takes one tensor here: join the inputs to one, e.g. x = torch.cat([u, v], 1), and split it in the "
    "network's `forward`"
)
"""What to do about several inputs."""

ABOUT_INPUTS = re.compile(r"size|shape|dim|type|elements|channels|[Ee]xpected|not implemented for|more than one value")
"""Torch's messages about inputs that do not fit hold one of these words."""
FROM_A_DEVICE = re.compile(r"CUDA|cuDNN|CUDNN|CUBLAS|HIP|MIOpen|MPS|XPU|NCCL|Triton|oneDNN|alloc")
"""Messages of devices and their libraries hold one of these, whatever else they say."""

BATCH_NUMBERS = 2**25
"""Numbers in a batch of a tensor by default: 128 MiB in float32."""

Inputs = Tensor | np.ndarray | Dataset[Any] | DataLoader[Any]


def device_of(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; the CPU for a module without any."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def float_type_of(model: nn.Module) -> torch.dtype:
    """The floating type of the first floating parameter; torch's default without any."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.get_default_dtype()


def as_tensor(name: str, value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Turn `value` into a checked tensor: real numbers, finite, at least one row.

    Args:
        name: what the caller calls it, for the message.
        value: tensor, array or nested list.
        dtype: floating values are converted to this; integers stay as they are.

    Raises:
        TypeError: for a type or dtype that holds no real numbers.
        ValueError: for an empty, scalar or non-finite value.
    """
    if isinstance(value, Tensor):
        tensor = value
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "buif":
            raise TypeError(
                f"`{name}` must hold numbers, got {type(value).__name__} of dtype {array.dtype}: "
                "encode text and categories as numbers first"
            )
        tensor = torch.from_numpy(np.require(array, requirements=["C", "W"]))
    if tensor.is_complex():
        raise TypeError(f"`{name}` must be real, got {tensor.dtype}")
    if tensor.ndim == 0 or len(tensor) == 0:
        raise ValueError(f"`{name}` must have at least one row, got shape {tuple(tensor.shape)}")
    if tensor.is_floating_point():
        if not bool(tensor.isfinite().all()):
            rows = (~tensor.flatten(1).isfinite()).any(1) if tensor.ndim > 1 else ~tensor.isfinite()
            first = int(rows.nonzero()[0])
            raise ValueError(
                f"`{name}` holds NaN or infinite values in {int(rows.sum())} of {len(tensor)} rows, first "
                f"in row {first}: drop or impute them"
            )
        tensor = tensor if dtype is None else tensor.to(dtype)
    return tensor


def pair_of(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch of a labelled data set."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        kind = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
        raise ValueError(f"`data` must yield (x, y) pairs, got a {kind}: wrap the dataset accordingly")
    return one_input(batch[0], batch[1]), batch[1]


def one_input(x: Any, y: Any = None) -> Any:
    """The inputs, which must not be several tensors that belong together; a list of rows may stay one.

    Args:
        x: what was given for the inputs.
        y: the targets, if there are any: then there are as many rows.

    Raises:
        TypeError: for a mapping, or a sequence of tensors that are not rows.
    """
    several = isinstance(x, Mapping)
    if isinstance(x, tuple | list) and len(x) > 1 and all(isinstance(part, Tensor | np.ndarray) for part in x):
        rows = len(y) if isinstance(y, Tensor | np.ndarray | list | tuple) and getattr(y, "ndim", 1) else None
        alike = len({tuple(part.shape) for part in x}) == 1
        stacked = len(x) == rows if rows is not None else isinstance(x, list) or x[0].ndim < 2
        several = not (alike and stacked)
    if several:
        kind = f"{type(x).__name__} of {len(x)}"
        raise TypeError(f"`x` must be one tensor or array, got a {kind}: {ONE_INPUT}")
    return x


def one_tensor(output: Any) -> Tensor:
    """The output of a network, which must be one tensor."""
    if not isinstance(output, Tensor):
        raise TypeError(
            f"the network must return one tensor, not {type(output).__name__}: wrap it in a module that returns the "
            "logits, or the values that it predicts"
        )
    return output


def per_example(output: Any) -> Tensor:
    """The output of a network, which must be one tensor with the examples along its first axis."""
    if one_tensor(output).ndim == 0:
        raise ValueError("the network returned one number without an axis of examples: write squeeze(-1) for squeeze()")
    return output


def is_about_inputs(error: RuntimeError | MemoryError) -> bool:
    """Whether torch raised because shapes or types do not fit, not because a device or the network's own code failed.

    Example:
        >>> is_about_inputs(RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x4 and 3x2)"))
        True
    """
    if FROM_A_DEVICE.search(str(error)):
        return False
    return isinstance(error, NotImplementedError) or ABOUT_INPUTS.search(str(error)) is not None


def realised(x: Tensor | Gaussian) -> Tensor:
    """The inputs, drawn where they are uncertain."""
    return x.rsample() if isinstance(x, Gaussian) else x


def refusal(x: Tensor, error: Exception) -> ValueError:
    """What to raise where the network itself failed with `error` on inputs like `x`."""
    sizes, advice = ", ".join(["N", *map(str, x.shape[1:])]), ""
    if "required positional argument" in str(error):
        advice = f"; {ONE_INPUT}"
    elif not x.is_floating_point() and any(word in str(error) for word in ("type", "not implemented for")):
        advice = "; layers other than embeddings need floats: pass x.float(), and embeddings x.long()"
    return ValueError(f"the network does not accept inputs of shape ({sizes}) and dtype {x.dtype}: {error}{advice}")


def input_batches(model: nn.Module, x: Any, batch_size: int | None) -> Iterator[Tensor]:
    """Yield batches of `x` on the model's device; of a data set's or loader's tuples the first element counts.

    Without a `batch_size` a batch is 1024 examples of a data set, or as many rows as hold `BATCH_NUMBERS`.
    """
    if batch_size is not None:
        (batch_size,) = check_counts(batch_size=batch_size)
    device, dtype = device_of(model), float_type_of(model)
    if isinstance(x, Dataset):
        x = DataLoader(x, batch_size or 1024)
    if isinstance(x, DataLoader):
        for batch in x:
            first, *others = batch if isinstance(batch, tuple | list) else [batch]
            yield as_tensor("x", one_input(first, others[0] if others else None), dtype).to(device)
    else:
        rows = as_tensor("x", one_input(x), dtype)
        for batch in rows.split(batch_size or max(1, BATCH_NUMBERS // max(1, rows[0].numel()))):
            yield batch.to(device)
