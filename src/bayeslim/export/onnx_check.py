"""Whether an ONNX file answers as the network it was made from: torch's exporter may lose an option of a layer."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["check_answers"]

RELATIVE = 1e-3
"""Rounding in float32, as a part of the largest output; lost options show as more."""
ABSOLUTE = 1e-5
"""Rounding of outputs that are small because large numbers cancel."""


@torch.no_grad()
def check_answers(content: bytes, network: nn.Module, x: Tensor, outputs: Sequence[str]) -> None:
    """Raise unless onnxruntime gives the network's own outputs for `x`; without onnxruntime nothing is done.

    Means may differ by `1e-3 max|mean| + 1e-5`, variances by `1e-3 max variance + 1e-5 (1 + max|mean|^2)`, which are
    rounding errors; in half precision its square root takes the place of 1e-3. A network that is random in itself,
    whose answers are not finite or which onnxruntime cannot run is not compared; of the last there is a warning.

    Args:
        content: the ONNX file.
        network: what it was made from, answering with one tensor or one for each of `outputs`.
        x: the example.
        outputs: names of the file's outputs; the first one is a mean or the output itself, the others are variances.

    Raises:
        ValueError: if the answers differ, saying by how much.

    Example:
        >>> check_answers(content, plain, x, ["output"])
    """
    if importlib.util.find_spec("onnxruntime") is None or x.dtype is torch.bfloat16:  # which numpy does not know
        return
    expected = _answers(network, x)
    pairs = zip(expected, _answers(network, x), strict=True)
    if not all(torch.equal(first, second) and bool(first.isfinite().all()) for first, second in pairs):
        return
    found = _run(content, x, outputs)
    if found is None:
        return
    level = _largest(expected[0])
    for name, own, wanted in zip(outputs, found, expected, strict=True):
        if not wanted.is_floating_point():
            continue
        relative = max(RELATIVE, math.sqrt(torch.finfo(wanted.dtype).eps))
        absolute = ABSOLUTE if name == outputs[0] else ABSOLUTE * (1 + level**2)
        size = _largest(wanted)
        worst = _largest(own - wanted) if own.shape == wanted.shape else math.inf
        if not worst <= relative * size + absolute:
            raise ValueError(
                f"the ONNX file does not answer as the network: its {name!r} is off by {worst:.3g} on `example`, where "
                f"the largest value is {size:.3g}, so it was not written. Most likely torch's exporter lost an option "
                "of a layer (e.g. `divisor_override` of AvgPool2d): replace that layer, or use export_program"
            )


def _largest(values: Tensor) -> float:
    """The largest magnitude; 0 of nothing."""
    return values.double().abs().max().item() if values.numel() else 0.0


def _answers(network: nn.Module, x: Tensor) -> list[Tensor]:
    answer: Any = network(x)
    return [answer] if isinstance(answer, Tensor) else list(answer)


def _run(content: bytes, x: Tensor, outputs: Sequence[str]) -> list[Tensor] | None:
    """The outputs of onnxruntime, or None where it cannot run the file."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return [torch.from_numpy(values) for values in session.run(list(outputs), {"input": x.numpy()})]
    except Exception as error:  # its errors have no common class but this one
        warnings.warn(
            f"onnxruntime cannot run the ONNX file, which was not compared with the network: {error}",
            RuntimeWarning,
            stacklevel=5,
        )
        return None
