"""As `draw`, for standard deviations of low rank: they are never stored, only their factors are.

A program handles a tile of weights. The gradient of a factor is a sum over a row or a column of the weight: each
program leaves the sums of its tile, and torch adds them up.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

__all__ = ["tied_draw", "tied_draw_backward"]

DRAW_TILE, BACKWARD_TILE = (8, 256), (64, 32)
"""Rows and columns of weights per program, the fastest of those tried on an H200."""


def tied_draw(
    loc: Tensor, u: Tensor, v: Tensor, seed: Tensor, prior: tuple[float, float], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`loc + (v u^T) * noise(seed)` in `dtype`, and the KL from `N(*prior)`.

    Args:
        loc: means (rows, columns), float32, contiguous.
        u: factors of the columns (columns, k), ditto.
        v: factors of the rows (rows, k), ditto.
        seed: int64 on the device, of which the first number counts.
        prior: mean and standard deviation.
        dtype: of the drawn weight.

    Returns:
        The weight, and `sum 0.5 (((loc - mean)^2 + std^2) / prior_std^2 - 1) + ln prior_std - ln std` as a scalar.
    """
    grid = _grid(loc, DRAW_TILE)
    weight = torch.empty_like(loc, dtype=dtype)
    sums = torch.empty(grid, device=loc.device)
    kernel: Any = _tied_draw
    factors = u.T.contiguous(), v.T.contiguous()
    kernel[grid](loc, *factors, seed, weight, sums, *loc.shape, prior[0], prior[1] ** -2, u.shape[1], *DRAW_TILE)
    return weight, sums.sum()


def tied_draw_backward(
    by_weight: Tensor, by_kl: Tensor, loc: Tensor, u: Tensor, v: Tensor, seed: Tensor, prior: tuple[float, float]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by `loc`, `u` and `v`, from those by the two results of `tied_draw`."""
    (rows, columns), k = loc.shape, u.shape[1]
    by_loc = torch.empty_like(loc)
    grid = _grid(loc, BACKWARD_TILE)
    by_u = torch.empty(grid[0], k, columns, device=loc.device)
    by_v = torch.empty(grid[1], k, rows, device=loc.device)
    factors = u.T.contiguous(), v.T.contiguous()
    arguments = (by_weight.contiguous(), by_kl, loc, *factors, seed, by_loc, by_u, by_v)
    kernel: Any = _tied_draw_backward
    kernel[grid](*arguments, rows, columns, prior[0], prior[1] ** -2, k, *BACKWARD_TILE)
    return by_loc, by_u.sum(0).T, by_v.sum(0).T


def _grid(loc: Tensor, tile: tuple[int, int]) -> tuple[int, int]:
    return triton.cdiv(loc.shape[0], tile[0]), triton.cdiv(loc.shape[1], tile[1])


@triton.jit
def _tied_draw(
    loc_at, u_at, v_at, seed_at, weight_at, sums_at, rows, columns, prior_mean, precision,
    K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column, place, valid = _tile(rows, columns, ROWS, COLUMNS)
    loc = tl.load(loc_at + place, mask=valid, other=0.0)
    std = _std(u_at, v_at, row, column, rows, columns, K, ROWS, COLUMNS)
    tl.store(weight_at + place, loc + std * _noise(seed_at, columns, ROWS, COLUMNS), mask=valid)
    distance, precision = loc - tl.cast(prior_mean, tl.float32), tl.cast(precision, tl.float32)
    terms = 0.5 * (precision * (distance * distance + std * std) - 1.0 - tl.log(precision)) - tl.log(std)
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(sums_at + program, tl.sum(tl.where(valid, terms, 0.0)))


@triton.jit
def _tied_draw_backward(
    by_weight_at, by_kl_at, loc_at, u_at, v_at, seed_at, by_loc_at, by_u_at, by_v_at, rows, columns, prior_mean,
    precision, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row, column, place, valid = _tile(rows, columns, ROWS, COLUMNS)
    by_kl = tl.load(by_kl_at)
    pull = by_kl * tl.cast(precision, tl.float32)
    by_weight = tl.load(by_weight_at + place, mask=valid, other=0.0).to(tl.float32)
    loc = tl.load(loc_at + place, mask=valid, other=0.0)
    tl.store(by_loc_at + place, by_weight + pull * (loc - tl.cast(prior_mean, tl.float32)), mask=valid)
    std = _std(u_at, v_at, row, column, rows, columns, K, ROWS, COLUMNS)
    by_std = by_weight * _noise(seed_at, columns, ROWS, COLUMNS) + pull * std - by_kl / std
    by_std = tl.where(valid, by_std, 0.0)
    for r in tl.static_range(K):
        u = tl.load(u_at + r * columns + column, mask=column < columns, other=0.0)
        v = tl.load(v_at + r * rows + row, mask=row < rows, other=0.0)
        of_u = by_u_at + (tl.program_id(0) * K + r) * columns
        tl.store(of_u + column, tl.sum(by_std * v[:, None], 0), mask=column < columns)
        of_v = by_v_at + (tl.program_id(1) * K + r) * rows
        tl.store(of_v + row, tl.sum(by_std * u[None, :], 1), mask=row < rows)


@triton.jit
def _tile(rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Rows and columns of this program's tile, the places of its weights, and which of them exist."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = row.to(tl.int64)[:, None] * columns + column[None, :]
    return row, column, place, (row < rows)[:, None] & (column < columns)[None, :]


@triton.jit
def _noise(seed_at, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Normal numbers for this program's tile, whatever its shape: four neighbours from one round of the generator."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    four = tl.program_id(1) * (COLUMNS // 4) + tl.arange(0, COLUMNS // 4)
    place = row[:, None] * tl.cdiv(columns, 4) + four[None, :]
    first, second, third, fourth = tl.randn4x(tl.load(seed_at), place)
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), (ROWS, COLUMNS))


@triton.jit
def _std(u_at, v_at, row, column, rows, columns, K: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """`v u^T` of a tile; K outside the weight."""
    std = tl.zeros((ROWS, COLUMNS), tl.float32)
    for r in tl.static_range(K):
        u = tl.load(u_at + r * columns + column, mask=column < columns, other=1.0)
        v = tl.load(v_at + r * rows + row, mask=row < rows, other=1.0)
        std += v[:, None] * u[None, :]
    return std
