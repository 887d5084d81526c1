"""Standard normal noise for weights and activations: torch's own or, in compiled code, of a hash."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["hashed_normal", "normal_like"]


def normal_like(tensor: Tensor) -> Tensor:
    """Independent standard normal numbers in the shape, type and place of `tensor`.

    Eager code draws `torch.randn_like`. Code under `torch.compile` gets `hashed_normal` of a random seed instead: the
    compiler fuses it with what uses the noise and computes it again in the backward pass, so that none is stored. (Its
    own normal numbers take ten times as long on the CPU.) Both follow `torch.manual_seed`; their numbers differ.
    """
    if not _compiled():
        return torch.randn_like(tensor)
    seed = torch.randint(-(2**31), 2**31 - 1, (2,), dtype=torch.int32, device=tensor.device)
    return hashed_normal(seed, tensor.shape).to(tensor.dtype)


def _compiled() -> bool:
    # Not `torch.compiler.is_exporting()`, which torch 2.11 answers by True in everything that it compiles.
    return torch.compiler.is_compiling() and not torch.compiler._is_exporting_flag


def hashed_normal(seed: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    r"""Normal numbers as a function of a seed and their place: a counter-based generator in plain operations.

    Number `i` is `sqrt(-2 ln u_i) sin(2 pi v_i)` (Box and Muller), where the 16-bit uniforms `u_i` and `v_i` are the
    two halves of a hash of `(i, seed)`: variance 1 to 2e-5, fourth moment 3 to 2e-4, nothing beyond 4.86. It is quick
    only where a compiler makes one loop of it.

    Args:
        seed: two int32 numbers, drawn at random: seconds that are close to each other give related numbers.
        shape: up to 2^31 numbers.

    Returns:
        float32, on the seed's device.

    Example:
        >>> hashed_normal(torch.tensor([1, 2], dtype=torch.int32), (2, 3)).shape
        torch.Size([2, 3])
    """
    # 32-bit products wrap around on CUDA; in C++ overflow is undefined, so the CPU takes 64 bits and cuts them.
    kind = torch.int32 if seed.is_cuda else torch.int64
    first, stream = seed if seed.is_cuda else seed.long() & WORD
    place = torch.arange(math.prod(shape), dtype=kind, device=seed.device)
    # Multiplied as it is, the place would be an index to the compiler, whose strides overflow.
    bits = _hash(_times(place ^ stream, WEYL) ^ first, stream)
    radius = torch.sqrt(-2 * torch.log((bits & 0xFFFF).float() * 2.0**-16 + 2.0**-17))
    return (radius * _sine(_shifted(bits, 16).float() * 2.0**-16 - (0.5 - 2.0**-17))).view(shape)


WORD = 2**32 - 1
WEYL = 0x61C88647
"""2^32 divided by the square of the golden ratio: its multiples lie far apart."""


def _hash(x: Tensor, stream: Tensor) -> Tensor:
    """Spread every bit of `x` over all 32 (shifts and factors of a search by C. Wellons), differently per stream."""
    x = _times(x ^ _shifted(x, 16), 0x21F0AAAD, stream)
    x = _times(x ^ _shifted(x, 15), 0x735A2D97)
    return x ^ _shifted(x, 15)


def _times(x: Tensor, factor: int, plus: Tensor | int = 0) -> Tensor:
    """`x * factor + plus` modulo 2^32, for factors below 2^31."""
    product = x * factor + plus
    return product if x.dtype == torch.int32 else product & WORD


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shift right and fill with zeros, as unsigned numbers do."""
    return (x >> by) & (2 ** (32 - by) - 1)


def _sine(turns: Tensor) -> Tensor:
    """`sin(2 pi turns)` for turns in [-1/2, 1/2], to 4e-6: the angle is folded to a quarter, then Taylor's series."""
    folded = turns.abs() - 0.25  # sin(2 pi t) = sign(t) cos(2 pi (|t| - 1/4)), and the sign of t is a fair coin
    square = (2 * math.pi * folded) ** 2
    series = 1 - square / 2 * (1 - square / 12 * (1 - square / 30 * (1 - square / 56 * (1 - square / 90))))
    return torch.where(turns < 0, -series, series)
