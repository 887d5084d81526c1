"""Products of matrices by oneDNN, where that is the faster one of the two libraries that come with torch."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["LARGE", "processor", "product_by_onednn"]

LARGE = 2**22
"""Multiplications from which oneDNN is the faster one: its calls take some 15 us more before anything is done."""


def processor(fact: str) -> str | None:
    """What Linux knows about the processor by this name; None elsewhere.

    Example:
        >>> processor("model name")
        'AMD EPYC'
    """
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(fact)), None)


# torch multiplies float32 matrices by MKL, which runs AVX2 code on AMD's processors where oneDNN uses AVX-512.
FASTER = (
    torch.backends.mkl.is_available()
    and torch.backends.mkldnn.is_available()
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
    and "AuthenticAMD" in (processor("vendor_id") or "")
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def product_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x weight^T + bias` for dense rows `x` (rows, in) and `weight` (out, in), without a gradient.

    Few long sums, as in the gradient of a thin layer, stay with MKL, and so does everything if
    `torch.backends.mkldnn` is switched off. A bias of another layout would be read wrongly.
    """
    outputs, columns = weight.shape
    fits = (
        x.shape[1] == columns
        and x.dtype == weight.dtype == torch.float32
        and min(len(x), outputs, columns) >= 16
        and len(x) * outputs >= 2**12
    )
    dense = bias is None or (bias.dtype == torch.float32 and bias.is_contiguous() and bias.shape == (outputs,))
    if not (FASTER and fits and dense and torch.backends.mkldnn.enabled):
        return F.linear(x, weight, bias)
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
