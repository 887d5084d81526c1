"""One kernel that draws a weight and sums its KL, and one that computes the gradient of both.

The noise is a function of (seed, place), drawn again in the backward pass: none of it is ever stored.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

__all__ = ["draw", "draw_backward"]

QUARTER = 256
"""A program handles four times as many weights: one round of the generator gives four normal numbers."""


def draw(
    loc: Tensor, log_std: Tensor, seed: Tensor, prior: tuple[float, float], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`loc + exp(log_std) * noise(seed)` in `dtype`, and the KL from `N(*prior)`.

    Args:
        loc: means, float32, contiguous.
        log_std: logs of the standard deviations, ditto.
        seed: int64 on the device, of which the first number counts.
        prior: mean and standard deviation.
        dtype: of the drawn weight.

    Returns:
        The weight, and parts of `sum 0.5 (((loc - mean)^2 + std^2) / prior_std^2 - 1) + ln prior_std - log_std`.
    """
    programs = triton.cdiv(loc.numel(), 4 * QUARTER)
    weight = torch.empty_like(loc, dtype=dtype)
    sums = torch.empty(programs, device=loc.device)
    kernel: Any = _draw
    kernel[(programs,)](loc, log_std, seed, weight, sums, loc.numel(), prior[0], prior[1] ** -2, QUARTER)
    return weight, sums


def draw_backward(
    by_weight: Tensor,
    by_kl: Tensor,
    loc: Tensor,
    log_std: Tensor,
    seed: Tensor,
    prior: tuple[float, float],
    in_place: bool = False,
) -> tuple[Tensor, Tensor]:
    """The gradients by `loc` and `log_std`, from those by the weight and the KL, which may be repeated for its parts.

    With `in_place` the first takes the place of `by_weight`, which must be float32 and contiguous.
    """
    by_weight = by_weight.contiguous()
    by_loc, by_log_std = by_weight if in_place else torch.empty_like(loc), torch.empty_like(loc)
    grid = (triton.cdiv(loc.numel(), 4 * QUARTER),)
    arguments = by_weight, by_kl, loc, log_std, seed, by_loc, by_log_std, loc.numel()
    kernel: Any = _draw_backward
    kernel[grid](*arguments, prior[0], prior[1] ** -2, QUARTER)
    return by_loc, by_log_std


@triton.jit
def _draw(loc_at, log_std_at, seed_at, weight_at, sums_at, count, prior_mean, precision, QUARTER: tl.constexpr):
    program = tl.program_id(0)
    place = program * QUARTER + tl.arange(0, QUARTER)
    noise0, noise1, noise2, noise3 = tl.randn4x(tl.load(seed_at), place)
    place += 3 * program.to(tl.int64) * QUARTER
    prior_mean, precision = tl.cast(prior_mean, tl.float32), tl.cast(precision, tl.float32)
    total = _drawn_quarter(loc_at, log_std_at, weight_at, place, noise0, count, prior_mean, precision)
    total += _drawn_quarter(loc_at, log_std_at, weight_at, place + QUARTER, noise1, count, prior_mean, precision)
    total += _drawn_quarter(loc_at, log_std_at, weight_at, place + 2 * QUARTER, noise2, count, prior_mean, precision)
    total += _drawn_quarter(loc_at, log_std_at, weight_at, place + 3 * QUARTER, noise3, count, prior_mean, precision)
    tl.store(sums_at + program, tl.sum(total))


@triton.jit
def _drawn_quarter(loc_at, log_std_at, weight_at, place, noise, count, prior_mean, precision):
    valid = place < count
    loc = tl.load(loc_at + place, mask=valid, other=0.0)
    log_std = tl.load(log_std_at + place, mask=valid, other=0.0)
    std = tl.exp(log_std)
    tl.store(weight_at + place, loc + std * noise, mask=valid)
    distance = loc - prior_mean
    kl = 0.5 * (precision * (distance * distance + std * std) - 1.0 - tl.log(precision)) - log_std
    return tl.where(valid, kl, 0.0)


@triton.jit
def _draw_backward(
    by_weight_at, by_kl_at, loc_at, log_std_at, seed_at, by_loc_at, by_log_std_at, count, prior_mean, precision,
    QUARTER: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    place = program * QUARTER + tl.arange(0, QUARTER)
    noise0, noise1, noise2, noise3 = tl.randn4x(tl.load(seed_at), place)
    place += 3 * program.to(tl.int64) * QUARTER
    by_kl = tl.load(by_kl_at)
    prior_mean = tl.cast(prior_mean, tl.float32)  # compiled code passes numbers in double precision
    pull = by_kl * tl.cast(precision, tl.float32)
    _slopes_quarter(
        by_weight_at, by_kl, pull, loc_at, log_std_at, by_loc_at, by_log_std_at, place, noise0, count, prior_mean
    )
    place += QUARTER
    _slopes_quarter(
        by_weight_at, by_kl, pull, loc_at, log_std_at, by_loc_at, by_log_std_at, place, noise1, count, prior_mean
    )
    place += QUARTER
    _slopes_quarter(
        by_weight_at, by_kl, pull, loc_at, log_std_at, by_loc_at, by_log_std_at, place, noise2, count, prior_mean
    )
    place += QUARTER
    _slopes_quarter(
        by_weight_at, by_kl, pull, loc_at, log_std_at, by_loc_at, by_log_std_at, place, noise3, count, prior_mean
    )


@triton.jit
def _slopes_quarter(
    by_weight_at, by_kl, pull, loc_at, log_std_at, by_loc_at, by_log_std_at, place, noise, count, prior_mean
):  # fmt: skip
    valid = place < count
    by_weight = tl.load(by_weight_at + place, mask=valid, other=0.0).to(tl.float32)
    loc = tl.load(loc_at + place, mask=valid, other=0.0)
    std = tl.exp(tl.load(log_std_at + place, mask=valid, other=0.0))
    tl.store(by_loc_at + place, by_weight + pull * (loc - prior_mean), mask=valid)
    tl.store(by_log_std_at + place, std * (by_weight * noise + pull * std) - by_kl, mask=valid)
