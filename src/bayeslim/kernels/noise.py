"""Standard normal noise for weights and activations: torch's own, of a table or, in compiled code, of a hash."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bayeslim.kernels.context import inside, now, transforms

__all__ = ["hashed_normal", "looked_up_normal", "normal_like", "normal_of_table", "normals"]

MANY = 2**17
"""From here the table is faster in a training step, which leaves nothing of it in the cache: 290 us instead of the 490
of `torch.randn` for so many, but 340 to 590 instead of 330 to 410 for half as many."""
MANY_FOR_PREDICTIONS = 2**16
"""From here it is faster where the table stays in the cache."""
AT_ONCE = 2**16
"""Numbers that are looked up together: what this takes stays in the cache."""


def normal_like(tensor: Tensor) -> Tensor:
    """Independent standard normal numbers in the shape, type and place of `tensor`.

    Eager code draws `torch.randn_like`, or many float32 numbers on a CPU by `looked_up_normal`, which takes half the
    time. Code under `torch.compile` gets `hashed_normal` of a random seed: the compiler fuses it with what uses the
    noise and, where the backward pass is compiled apart, computes it again there, so that none is stored. (Its own
    normal numbers take ten times as long on the CPU.) All follow `torch.manual_seed`; their numbers differ.
    """
    context = now(tensor)
    if context.compiling:
        seed = torch.randint(-(2**31), 2**31 - 1, (2,), dtype=torch.int32, device=tensor.device)
        return hashed_normal(seed, tensor.shape).to(tensor.dtype)
    found = None if context.recorded else _looked_up(tensor.shape, tensor, MANY)
    return torch.randn_like(tensor) if found is None else found


def normals(shape: torch.Size | tuple[int, ...], like: Tensor) -> Tensor:
    """Normal numbers in another shape, for eager code.

    Example:
        >>> normals((200, 3), torch.zeros(3)).shape
        torch.Size([200, 3])
    """
    found = None if now(like).recorded else _looked_up(shape, like, MANY_FOR_PREDICTIONS)
    return torch.randn(shape, dtype=like.dtype, device=like.device) if found is None else found


def normal_of_table(shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Float32 numbers on the CPU by `looked_up_normal` of a random seed."""
    return looked_up_normal(int(torch.randint(2**62, (), device="cpu")), shape)


def _looked_up(shape: torch.Size | tuple[int, ...], like: Tensor, many: int) -> Tensor | None:
    """Numbers out of the table, or None for fewer than `many` or for other tensors than plain float32 ones on a CPU.

    Inside `torch.vmap` numbers for all samples are drawn at once, where those are to differ.
    """
    if like.dtype != torch.float32 or like.device.type != "cpu" or type(like) not in (Tensor, nn.Parameter):
        return None
    count, around = math.prod(shape), transforms()
    if not around:
        return normal_of_table(shape) if count >= many else None
    if len(around) > 1 or around[0].key() != inside.TransformType.Vmap:
        return None
    vmap = inside.CVmapInterpreterPtr(around[0])
    samples, differ = vmap.batchSize(), vmap.randomness() == inside.RandomnessType.Different
    if not differ or samples * count < many:
        return None
    seed = inside.get_unwrapped(torch.randint(2**62, (), device="cpu"))
    return inside._add_batch_dim(looked_up_normal(int(seed[0]), (samples, *shape)), 0, vmap.level())


def looked_up_normal(seed: int, shape: torch.Size | tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    r"""Normal numbers out of a table, in which random bits choose: a function of the seed.

    The table holds the means of the normal distribution in 2^16 intervals of equal probability, and 16 bits of the
    generator SFC64 choose an entry: variance 1, fourth moment 2.9998, nothing beyond 4.39.

    Args:
        seed: of the generator, not negative.
        shape: of the result.
        dtype: float32 or float64.

    Returns:
        A tensor on the CPU.

    Example:
        >>> looked_up_normal(1, (2, 3)).shape
        torch.Size([2, 3])
    """
    found = torch.empty(shape, dtype=dtype, device="cpu")
    generator, table, numbers = np.random.SFC64(seed), _table(dtype), found.numpy().reshape(-1)
    for start in range(0, len(numbers), AT_ONCE):
        part = numbers[start : start + AT_ONCE]
        chosen = generator.random_raw(math.ceil(len(part) / 4)).view(np.uint16)[: len(part)]
        table.take(chosen, out=part, mode="wrap")  # the mode that copies nothing
    return found


@functools.cache
def _table(dtype: torch.dtype) -> np.ndarray[Any, Any]:
    """Means of the normal distribution between its quantiles, scaled to variance 1."""
    with torch.inference_mode(False):
        edges = torch.special.ndtri(torch.linspace(0, 1, 2**16 + 1, dtype=torch.float64, device="cpu"))
        density = torch.exp(-0.5 * edges.square())
        means = density[:-1] - density[1:]
        return (means / means.square().mean().sqrt()).to(dtype).numpy()


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


SINE = (6.2831828, -41.3414214, 81.5961839, -76.5801004, 41.2053942, -12.2712612)
"""Of the odd polynomial of degree 11 that is closest to `sin(2 pi t)` for t in [-1/2, 1/2]: to 1e-7."""


def _sine(turns: Tensor) -> Tensor:
    """`sin(2 pi turns)` for turns in [-1/2, 1/2]."""
    square = turns * turns
    series = square * SINE[-1] + SINE[-2]
    for factor in SINE[-3::-1]:
        series = square * series + factor
    return turns * series
