"""Moment rules against derivatives: of the function for its variance, of the rule for its own gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bayeslim.gaussian import Gaussian
from moment_rules.monte_carlo import Function, moments_of


def first_order(function: Function, x: Gaussian) -> tuple[Tensor, Tensor]:
    """`f(m)` and `J^2 v`, all derivatives written out; exact where `function` is linear."""
    value = function(x.loc)
    jacobian: Any = torch.autograd.functional.jacobian(function, x.loc)
    return value, (jacobian.reshape(value.numel(), -1).square() @ x.variance.flatten()).reshape(value.shape)


def assert_first_order(function: Function, x: Gaussian, rtol: float = 1e-12) -> None:
    found, (mean, variance) = moments_of(function, x), first_order(function, x)
    torch.testing.assert_close(found.loc, mean, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found.variance, variance, rtol=rtol, atol=1e-13)
    assert found.mode == x.mode


def assert_gradients(function: Function, *inputs: Gaussian) -> None:
    """The rule's gradients with respect to all means and variances, by finite differences."""

    def both(*parts: Tensor) -> tuple[Tensor, Tensor]:
        pairs = zip(parts[::2], parts[1::2], inputs, strict=True)
        found = function(*(Gaussian.of(m, v, x.mode) for m, v, x in pairs))
        return found.loc, found.variance

    parts = [part.detach().clone().requires_grad_() for x in inputs for part in (x.loc, x.variance)]
    assert torch.autograd.gradcheck(both, parts)
