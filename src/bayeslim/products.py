"""Products of matrices on a CPU, by whichever library of those that come with torch is the faster one there."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from bayeslim.compiled_code import compiling, inside, recorded

__all__ = ["by_onednn", "linear", "processor", "product", "suits_onednn"]

LARGE = 2**22
"""Multiplications from which oneDNN is the faster one: its calls take some 15 us more before anything is done.

Compiled code has one graph on either side of this."""
SUMS = 2**12
"""Sums of which such a product must consist: few long ones, as in the gradient of a thin layer, are MKL's."""
LEAST = 16
"""Rows or columns from which it pays that oneDNN rearranges what it multiplies."""


def processor(fact: str) -> str | None:
    """What Linux knows about the processor by this name; None elsewhere.

    Example:
        >>> processor("model name")
        'AMD EPYC'
    """
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(fact)), None)


def _onednn_is_faster() -> bool:
    """Whether this is a processor of AMD with AVX-512 under a torch that multiplies by MKL and has oneDNN.

    A fact about the machine, not a measurement: a seed gives the same numbers on every day.
    """
    return (
        torch.backends.mkl.is_available()
        and torch.backends.mkldnn.is_available()
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and "AuthenticAMD" in (processor("vendor_id") or platform.processor())
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


ONEDNN_IS_FASTER = _onednn_is_faster()


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x weight^T + bias` for rows `x` (rows, in) and `weight` (out, in), without a gradient.

    torch multiplies float32 matrices by MKL, which on AMD's processors runs AVX2 code, also where there is AVX-512.
    oneDNN uses that: half the time on a Zen 5 for hidden layers and batches, forwards and backwards
    (`benchmarks/products.py`). Elsewhere, and where `torch.backends.mkldnn` is switched off, this is `F.linear`.

    Args:
        x: on any device, in any type and layout.
        weight: likewise.
        bias: (out,) or None.

    Example:
        >>> product(torch.ones(2, 3), torch.ones(4, 3)).shape
        torch.Size([2, 4])
    """
    if not suits_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    return (_operator if compiling() else by_onednn)(x, weight, bias)


def suits_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether `product` of these is oneDNN's: large enough, dense, float32, on a CPU, and tensors of no special kind.

    Its operator believes what it is told about a bias: one of another shape or layout would be read wrongly.
    """
    return (
        ONEDNN_IS_FASTER
        and _is_plain(x)
        and _is_plain(weight)
        and x.ndim == weight.ndim == 2
        and x.shape[1] == weight.shape[1]
        and _is_large(len(x), weight)
        and (bias is None or (_is_plain(bias) and bias.shape == weight.shape[:1] and bias.is_contiguous()))
        and bool(torch.backends.mkldnn.enabled)
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` by `product`, eager and compiled, with gradients of every order.

    Inside `torch.vmap` without gradients all samples are rows of one product, where they share the weight. Other
    transforms, autocast, tangents, exporters, tracers and modes that note which functions run get `F.linear` itself.

    Args:
        x: (..., in).
        weight: (out, in).
        bias: (out,) or None.
    """
    if not (ONEDNN_IS_FASTER and _is_plain(x)) or x.ndim < 2 or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    if compiling():
        followed = torch._C._are_functorch_transforms_active()
    else:
        followed = recorded() or forward_ad._current_level >= 0
    if followed:
        return F.linear(x, weight, bias)
    transforms = None if compiling() else inside.get_interpreter_stack()
    if transforms:
        return _over_samples(transforms, x, weight, bias)
    rows = x if x.ndim == 2 else x.flatten(0, -2)
    if not suits_onednn(rows, weight, bias):
        return F.linear(x, weight, bias)
    output = _multiplied(rows, weight, bias)
    return output if x.ndim == 2 else output.unflatten(0, x.shape[:-1])


def _is_large(rows: int, weight: Tensor) -> bool:
    """Whether oneDNN pays for so many rows of inputs."""
    outputs, columns = weight.shape
    work, sums = rows * outputs * columns, rows * outputs
    return work >= LARGE and sums >= SUMS and min(rows, outputs, columns) >= LEAST


def _is_plain(tensor: Tensor) -> bool:
    """Whether this is a float32 tensor on a CPU and nothing more, such as sparse, nested or a part of a sharded one."""
    return (
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.dtype == torch.float32
        and tensor.device.type == "cpu"
        and (compiling() or (tensor.layout is torch.strided and not tensor.is_nested))  # where nobody may ask for it
    )


def _over_samples(transforms: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Inside torch's transforms: one product where that is `torch.vmap` alone and only `x` differs between samples."""
    alone = len(transforms) == 1 and transforms[0].key() == inside.TransformType.Vmap and not torch.is_grad_enabled()
    shared = not any(part is not None and inside.is_batchedtensor(part) for part in (weight, bias))
    if not (alone and shared and inside.is_batchedtensor(x)):
        return F.linear(x, weight, bias)
    values = inside.get_unwrapped(x).movedim(inside.maybe_get_bdim(x), 0)
    rows = values.flatten(0, -2)
    if not suits_onednn(rows, weight, bias):
        return F.linear(x, weight, bias)
    output = product(rows, weight, bias).unflatten(0, values.shape[:-1])
    return inside._add_batch_dim(output, 0, inside.maybe_get_level(x))


def _multiplied(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`product`, with a gradient where one may be wanted."""
    wanted = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias))
    found: Any = _Product.apply(x, weight, bias) if wanted else product(x, weight, bias)
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (by_output,), (for_x, for_weight, for_bias) = ctx.saved_tensors, gradients, ctx.needs_input_grad
        multiply = product if compiling() else linear  # which can be differentiated again
        return (
            multiply(by_output, weight.T) if for_x else None,
            multiply(by_output.T, x.T) if for_weight else None,
            by_output.sum(0) if for_bias else None,
        )


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`x weight^T + bias` by oneDNN, for float32 rows on a CPU in any layout, not empty."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


# To a compiler oneDNN's own operator means a weight that never changes, so it is shown this one.
@torch.library.custom_op("bayeslim::product", mutates_args=(), device_types="cpu")
def _operator(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return by_onednn(x, weight, bias)


@_operator.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])
