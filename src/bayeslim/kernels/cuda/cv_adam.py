"""One kernel for one step of CV-Adam over all parameters of a group; the noise is a function of (seed, place)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

__all__ = ["Table", "cv_adam_step_", "make_table"]

QUARTER = 256
"""A program handles four times as many weights: one round of the generator gives four normal numbers."""
COLUMNS = 7


@dataclass
class Table:
    """Where the tensors of a group lie, on the device; made once, and again when one of them has moved."""

    key: tuple[int, ...]
    """What must not have changed."""
    rows: Tensor
    """A row per parameter: addresses of weight, gradient, rho, velocity, decay (0 for none); size; seed offset."""
    programs: Tensor
    """Parameter and first element of every program."""


def make_table(
    key: tuple[int, ...], tensors: list[tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]], offsets: list[int]
) -> Table:
    """Lay out weight, gradient, rho, velocity and decay of every parameter, and what to add to the group's seed."""
    rows: list[list[int]] = []
    programs: list[tuple[int, int]] = []
    for number, (parts, offset) in enumerate(zip(tensors, offsets, strict=True)):
        size = parts[0].numel()
        rows.append([*(0 if part is None else part.data_ptr() for part in parts), size, offset])
        programs += [(number, start) for start in range(0, size, 4 * QUARTER)]
    device = tensors[0][0].device
    return Table(key, torch.tensor(rows, device=device), torch.tensor(programs, device=device))


def cv_adam_step_(
    table: Table, seeds: tuple[int, int], *, lr: float, alpha: float, decay: float, beta1: float, beta2: float,
    eta: float, count: int,
) -> None:  # fmt: skip
    """Move weights, rho and velocities in place, as the docstring of `CVAdam` says.

    Args:
        table: the float32 tensors.
        seeds: of the noise of the step before and of this step.
        lr: learning rate.
        alpha: `k lr^(3/4)`.
        decay: weight decay, where a parameter has no tensor of its own.
        beta1: momentum.
        beta2: weight of the gradient.
        eta: step of rho.
        count: number of training examples.
    """
    kernel: Any = _step
    kernel[(len(table.programs),)](
        table.rows, table.programs, seeds[0] % 2**61, seeds[1] % 2**61, lr * beta2, alpha,
        (2 + 2 * beta1**2) ** 0.5 * alpha, decay, beta1, eta, 1 / count, COLUMNS, QUARTER,
    )  # fmt: skip


@triton.jit(do_not_specialize=["old_seed", "new_seed", "step", "alpha", "spread", "decay"])
def _step(
    rows, programs, old_seed, new_seed, step, alpha, spread, decay, beta1, eta, share,
    COLUMNS: tl.constexpr, QUARTER: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row = rows + tl.load(programs + 2 * program) * COLUMNS
    start = tl.load(programs + 2 * program + 1)
    weight_at = tl.load(row).to(tl.pointer_type(tl.float32))
    gradient_at = tl.load(row + 1).to(tl.pointer_type(tl.float32))
    rho_at = tl.load(row + 2).to(tl.pointer_type(tl.float32))
    velocity_at = tl.load(row + 3).to(tl.pointer_type(tl.float32))
    decay_address = tl.load(row + 4)
    size = tl.load(row + 5)
    offset = tl.load(row + 6)
    inside = tl.arange(0, QUARTER)
    counter = (start // 4).to(tl.int32) + inside
    old0, old1, old2, old3 = tl.randn4x(old_seed + offset, counter)
    new0, new1, new2, new3 = tl.randn4x(new_seed + offset, counter)
    place = start + inside
    _quarter(
        weight_at, gradient_at, rho_at, velocity_at, decay_address, decay, place, old0, new0, size,
        step, alpha, spread, beta1, eta, share,
    )  # fmt: skip
    _quarter(
        weight_at, gradient_at, rho_at, velocity_at, decay_address, decay, place + QUARTER, old1, new1, size,
        step, alpha, spread, beta1, eta, share,
    )  # fmt: skip
    _quarter(
        weight_at, gradient_at, rho_at, velocity_at, decay_address, decay, place + 2 * QUARTER, old2, new2, size,
        step, alpha, spread, beta1, eta, share,
    )  # fmt: skip
    _quarter(
        weight_at, gradient_at, rho_at, velocity_at, decay_address, decay, place + 3 * QUARTER, old3, new3, size,
        step, alpha, spread, beta1, eta, share,
    )  # fmt: skip


@triton.jit
def _quarter(
    weight_at, gradient_at, rho_at, velocity_at, decay_address, decay, place, old, new, size,
    step, alpha, spread, beta1, eta, share,
):  # fmt: skip
    valid = place < size
    weight = tl.load(weight_at + place, mask=valid, other=0.0)
    gradient = tl.load(gradient_at + place, mask=valid, other=0.0)
    rho = tl.load(rho_at + place, mask=valid, other=0.0)
    velocity = tl.load(velocity_at + place, mask=valid, other=0.0)
    decay_at = decay_address.to(tl.pointer_type(tl.float32))
    pull = tl.load(decay_at + place, mask=valid & (decay_address != 0), other=decay)
    tau = tl.sigmoid(rho)
    rho -= eta * (alpha * alpha * pull * tau + alpha * old * gradient - share / tau)
    velocity = beta1 * velocity - step * (gradient + pull * weight) + spread * new
    tl.store(rho_at + place, rho, mask=valid)
    tl.store(velocity_at + place, velocity, mask=valid)
    tl.store(weight_at + place, weight + tl.sigmoid(rho) * velocity, mask=valid)
