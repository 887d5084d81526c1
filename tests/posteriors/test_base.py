"""The smooth bound that posteriors share."""

from __future__ import annotations

import math

import pytest
import torch

from bayeslim.posteriors.base import soft_upper_bound, soft_upper_bound_inverse, wide
from contracts.members import over


@over("bound", [-4.0, 0.0, 2.5])
def test_the_bound_holds_and_rises_everywhere(bound: float) -> None:
    raw = torch.linspace(-60, 60, 1001, dtype=torch.float64, requires_grad=True)
    value = soft_upper_bound(raw, bound)
    assert bool((value <= bound).all())
    (slope,) = torch.autograd.grad(value.sum(), raw)
    assert bool((slope > 0).all() and (slope <= 1).all())
    assert torch.equal(value[raw < bound - 40], raw[raw < bound - 40])


@over("value", [-30.0, -2.0, 0.9, 0.999])
def test_the_inverse_undoes_it(value: float) -> None:
    raw = soft_upper_bound_inverse(value, 1.0)
    bent = soft_upper_bound(torch.tensor(raw, dtype=torch.float64), 1.0)
    assert bent.item() == pytest.approx(value, abs=1e-12)


def test_no_bound_changes_nothing() -> None:
    raw = torch.tensor([-5.0, 100.0])
    assert soft_upper_bound(raw, math.inf) is raw
    assert soft_upper_bound_inverse(3.0, math.inf) == 3.0


def test_only_float16_is_widened() -> None:
    assert wide(torch.ones(2, dtype=torch.float16)).dtype == torch.float32
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert wide(torch.ones(2, dtype=dtype)).dtype == dtype
