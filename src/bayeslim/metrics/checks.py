"""What the metrics demand of their inputs, and the errors that say so.

A metric that accepts logits for probabilities, or broadcasts (N, 1) against (N,), returns a
plausible wrong number; these checks refuse instead. Each returns the checked tensor detached and
ready for arithmetic: float64, or int64 for labels.
"""

import torch
from torch import Tensor

from bayeslim.checks.counts import plain_integer

# Measured on softmax rows of 10 to 1000 classes, the sum is off by at most 7e-7 in float32, 4e-4
# in float16 and 3e-3 in bfloat16: the last is refused, as its error may move a calibration curve.
ROW_SUM_TOLERANCE = 1e-3


def real_values(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` as float64 after checking that it is a real, non-empty, finite tensor.

    Args:
        name: the caller's argument name, used in the error.
        tensor: any shape, floating or integer.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"`{name}` must be a torch.Tensor, got {type(tensor).__name__}: pass torch.as_tensor({name})")
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"`{name}` must hold real numbers, got dtype {tensor.dtype}: pass a floating tensor")
    if tensor.numel() == 0:
        raise ValueError(f"`{name}` must not be empty, got shape {tuple(tensor.shape)}: pass at least one example")
    finite = tensor.isfinite()
    if not finite.all():
        first = tuple((~finite).nonzero()[0].tolist())
        raise ValueError(
            f"`{name}` must be finite, got {tensor[first].item()} at index {first} "
            f"({int((~finite).sum())} non-finite in all): find where the model diverged, "
            "or drop those examples"
        )
    # The MPS backend has no float64, so there the arithmetic moves to the CPU.
    device = torch.device("cpu") if tensor.device.type == "mps" else tensor.device
    return tensor.detach().to(device=device, dtype=torch.float64)


def positive_values(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` as float64 after checking that it is real, finite and above zero."""
    values = real_values(name, tensor)
    if (smallest := values.min().item()) <= 0:
        raise ValueError(
            f"`{name}` must be > 0 everywhere, got a minimum of {smallest:g}: "
            "add the observation noise, or a floor such as 1e-12"
        )
    return values


def score_vector(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` as float64 after checking that it is real, finite and of shape (N,)."""
    values = real_values(name, tensor)
    if values.ndim != 1:
        raise ValueError(f"`{name}` must be (N,), got shape {tuple(values.shape)}: pass one score per example")
    return values


def class_probabilities(probabilities: Tensor) -> Tensor:
    """Return `probabilities` as float64 after checking that its rows (N, C) are distributions."""
    values = real_values("probabilities", probabilities)
    if not probabilities.is_floating_point():
        raise TypeError(
            f"`probabilities` must be floating, got dtype {probabilities.dtype}: "
            "pass softmax(logits), not predicted labels"
        )
    if values.ndim != 2 or values.shape[1] < 2:
        raise ValueError(
            f"`probabilities` must be (N, C) with C >= 2, got shape {tuple(values.shape)}: "
            "for two classes pass stack([1 - p, p], dim=-1); flatten further batch dimensions"
        )
    if (smallest := values.min().item()) < 0:
        raise ValueError(f"`probabilities` must be >= 0, got a minimum of {smallest:g}: pass softmax(logits)")
    sums = values.sum(1)
    worst = int((sums - 1).abs().argmax())
    if abs(sums[worst].item() - 1) > ROW_SUM_TOLERANCE:
        raise ValueError(
            f"`probabilities` must sum to 1 in each row within {ROW_SUM_TOLERANCE:g}, got "
            f"{sums[worst].item():g} in row {worst}: pass softmax(logits), computed in float32"
        )
    return values


def class_labels(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Return `labels` as int64 on the device of `probabilities` after checking shape and range.

    Args:
        labels: (N,), integers in 0..C-1.
        probabilities: (N, C), already checked.
    """
    count, classes = probabilities.shape
    if not isinstance(labels, Tensor):
        raise TypeError(f"`labels` must be a torch.Tensor, got {type(labels).__name__}: pass torch.as_tensor(labels)")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise TypeError(f"`labels` must be integers, got dtype {labels.dtype}: pass class indices, e.g. labels.long()")
    if labels.shape != (count,):
        raise ValueError(
            f"`labels` must be ({count},) to match `probabilities` {tuple(probabilities.shape)}, "
            f"got shape {tuple(labels.shape)}: pass class indices, not one-hot rows"
        )
    smallest, largest = int(labels.min()), int(labels.max())
    if smallest < 0 or largest >= classes:
        raise ValueError(
            f"`labels` must lie in 0..{classes - 1}, got {smallest}..{largest}: renumber the "
            "classes from 0, and drop padding labels with their rows"
        )
    return labels.detach().to(device=probabilities.device, dtype=torch.int64)


def matching_shapes(first_name: str, first: Tensor, name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` on the device of `first` after checking that the shapes are equal."""
    if tensor.shape != first.shape:
        raise ValueError(
            f"`{name}` must have the shape of `{first_name}` {tuple(first.shape)}, got "
            f"{tuple(tensor.shape)}: nothing is broadcast, pass e.g. {name}.reshape or .expand"
        )
    return tensor.to(first.device)


def bin_count(bins: int) -> int:
    """Return `bins` as Python's own integer after checking that it is a positive one."""
    number = plain_integer(bins)
    if type(number) is not int or number < 1:
        raise ValueError(f"`bins` must be an integer >= 1, got {bins!r}: pass e.g. 15")
    return number
