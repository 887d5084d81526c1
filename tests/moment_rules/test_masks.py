"""Certain values put into uncertain ones, before a softmax too."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from bayeslim.gaussian import Gaussian
from contracts.members import over
from moment_rules.jacobians import assert_first_order, assert_gradients
from moment_rules.monte_carlo import Function, assert_exact, certain, moments_of, uncertain

MASK = torch.tensor([[True, False, False, True], [False] * 4, [False, True, True, True]])
X = uncertain(2, 3, 4)

FILLED: dict[str, Function] = {
    "method": lambda x: x.masked_fill(MASK, 0.5),
    "function": lambda x: torch.masked_fill(x, MASK, 0.5),
    "named": lambda x: x.masked_fill(mask=MASK, value=-2),
    "row": lambda x: x.masked_fill(MASK[0], 0.5),
    "tensor": lambda x: x.masked_fill(MASK, torch.tensor(0.5)),
    "nowhere": lambda x: x.masked_fill(MASK[1], 0.5),
    "index": lambda x: x.index_fill(-1, torch.tensor([2, 0]), 0.5),
    "index-function": lambda x: torch.index_fill(x, 1, torch.tensor([1]), 3.0),
}


@over("name", FILLED)
@over("mode", ["exact", "taylor"])
def test_what_is_filled_in_is_certain(name: str, mode: Any) -> None:
    x = uncertain(2, 3, 4, mode=mode)
    found, other = moments_of(FILLED[name], x), FILLED[name](torch.zeros(2, 3, 4).double())
    kept = other == 0
    assert torch.equal(found.loc, torch.where(kept, x.loc, other))
    assert torch.equal(found.variance, torch.where(kept, x.variance, 0.0))
    assert found.mode == mode


def test_by_monte_carlo_and_gradients() -> None:
    for name in ("method", "index"):
        assert_exact(FILLED[name], X)
        assert_gradients(FILLED[name], X)


def test_an_uncertain_value_fills_in_its_variance() -> None:
    value = Gaussian(torch.tensor(2.0).double(), torch.tensor(0.3).double())
    for found in (X.masked_fill(MASK, value), X.loc.masked_fill(MASK, value)):
        assert torch.equal(found.loc, torch.where(MASK, 2.0, X.loc))
    assert torch.equal(X.masked_fill(MASK, value).variance, torch.where(MASK, value.variance, X.variance))
    assert torch.equal(X.loc.masked_fill(MASK, value).variance, torch.where(MASK, value.variance, 0.0).expand(2, 3, 4))
    with pytest.raises(TypeError, match=r"`index_fill` with an uncertain value: use torch\.where"):
        X.index_fill(0, torch.tensor([0]), value)


def test_a_comparison_with_a_gaussian_is_no_mask() -> None:
    """`x == 0` is python's own comparison of objects: False."""
    with pytest.raises(TypeError):
        X.masked_fill(X == 0, 1.0)


@over("value", [-math.inf, -1e9])
@over("function", ["softmax", "log_softmax"])
def test_masked_logits(value: float, function: str) -> None:
    """What is left is a softmax of the others; the masked have no probability, and no variance but that of the sum."""
    x = uncertain(2, 5)
    mask = torch.tensor([False, True, False, False, True])
    found = getattr(x.masked_fill(mask, value), function)(-1)
    alone = getattr(x[:, ~mask], function)(-1)
    torch.testing.assert_close(found.loc[:, ~mask], alone.loc)
    torch.testing.assert_close(found.variance[:, ~mask], alone.variance)
    assert found.variance.isfinite().all()
    if function == "softmax":
        assert not found.loc[:, mask].any() and not found.variance[:, mask].any()


def test_gradients_through_masked_logits() -> None:
    x = uncertain(2, 4)
    assert_gradients(lambda x: x.masked_fill(MASK[0], -math.inf).softmax(-1), x)
    assert_first_order(lambda x: x.masked_fill(MASK[0], -math.inf).softmax(-1), x)


def test_attention_written_out_with_a_mask() -> None:
    """As the rule of torch's own attention in first order, which takes the weights as independent too."""
    q, k, v = (uncertain(2, 4, 3, seed=seed, mode="taylor") for seed in range(3))
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    scores = q @ k.mT / math.sqrt(3)
    found = scores.masked_fill(~causal, -math.inf).softmax(-1) @ v
    expected: Any = F.scaled_dot_product_attention(q, k, v, attn_mask=causal)
    torch.testing.assert_close(found.loc, expected.loc)
    torch.testing.assert_close(found.variance, expected.variance)


def test_triangles_and_masks_agree() -> None:
    x, causal = uncertain(4, 4), torch.ones(4, 4, dtype=torch.bool).tril()
    found, expected = x.tril(), x.masked_fill(~causal, 0.0)
    assert torch.equal(found.loc, expected.loc) and torch.equal(found.variance, expected.variance)
    assert torch.equal(certain(4, 4).tril(), certain(4, 4).masked_fill(~causal, 0.0))
