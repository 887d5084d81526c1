"""Softmax and attention: first order, within the stated error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayeslim.gaussian import Gaussian
from contracts.cases import each
from contracts.members import over
from contracts.statistics import assert_moments
from moment_rules.monte_carlo import (
    Function,
    assert_states,
    certain,
    deviation_error,
    moments_of,
    uncertain,
)
from moment_rules.monte_carlo import sampled as vectorised


def sampled(function: Function, *inputs: Gaussian | Tensor, count: int) -> Tensor:
    """Draws by torch's plain attention; its fused ones have no rule for `vmap`."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            return vectorised(function, *inputs, count=count)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def logits(noise: float) -> Gaussian:
    mean = certain(10, 10)
    return Gaussian(mean, torch.full_like(mean, noise**2))


@pytest.mark.parametrize(
    ("function", "noise", "stated"),
    [
        (F.softmax, 0.3, 0.03),
        (F.softmax, 1.0, 0.2),
        (F.log_softmax, 0.3, 0.004),
        (F.log_softmax, 1.0, 0.03),
    ],
)
def test_ten_logits_are_as_far_off_as_stated(function: Function, noise: float, stated: float) -> None:
    error = deviation_error(lambda x: function(x, -1), logits(noise))
    assert_states(error.abs().mean().item(), stated)


@each("function", [F.softmax, torch.softmax, F.log_softmax, torch.log_softmax])
@each("mode", ["exact", "taylor"])
@each("dim", [0, 1, -1])
def test_the_variance_is_that_of_the_full_jacobian(function: Function, mode: Any, dim: int) -> None:
    x = uncertain(3, 4, mode=mode)
    found = moments_of(lambda x: function(x, dim), x)
    jacobian: Any = torch.autograd.functional.jacobian(lambda x: function(x, dim), x.loc)
    expected = jacobian.reshape(12, 12).square() @ x.variance.flatten()
    torch.testing.assert_close(found.loc, function(x.loc, dim))
    torch.testing.assert_close(found.variance.flatten(), expected)
    assert found.mode == mode


def test_softmax_of_modules_methods_and_types() -> None:
    x: Any = Gaussian(torch.randn(2, 3), torch.rand(2, 3))
    for found in (nn.Softmax(1)(x), x.softmax(1), nn.LogSoftmax(1)(x), x.log_softmax(1)):
        assert isinstance(found, Gaussian)
    assert F.softmax(x, 1, dtype=torch.float64).dtype == torch.float64


def test_a_sure_class_has_no_variance_left() -> None:
    x: Any = Gaussian(torch.tensor([[200.0, 0.0, -200.0]]), torch.ones(1, 3))
    found: Any = F.softmax(x, -1)
    assert torch.equal(found.variance, torch.zeros(1, 3))
    found = F.log_softmax(x, -1)
    torch.testing.assert_close(found.variance, torch.tensor([[0.0, 2.0, 2.0]]))


def triple(noise: float, heads: int = 2, length: int = 4, source: int = 5) -> tuple[Any, Any, Any]:
    """Queries, keys and values (1, heads, length, 6)."""
    sizes = ((heads, length), (heads, source), (heads, source))
    q, k, v = (uncertain(1, *size, 6, seed=i, scale=noise) for i, size in enumerate(sizes))
    return q, k, v


KEEP = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]]).bool()
ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "boolean": {"attn_mask": KEEP},
    "floating": {"attn_mask": certain(4, 5)},
    "per head": {"attn_mask": certain(1, 2, 4, 5)},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.2},
    "dropout": {"dropout_p": 0.3},
}


@over("name", ATTENTION)
def test_attention_is_as_far_off_as_stated(name: str) -> None:
    inputs, options = triple(0.3), ATTENTION[name]
    without: dict[str, Any] = options | {"dropout_p": 0.0}

    def attend(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, **options)

    found, samples = moments_of(attend, *inputs), sampled(attend, *inputs, count=20_000)
    q, k, v = (x.loc for x in inputs)
    expected = F.scaled_dot_product_attention(q, k, v, **without)
    torch.testing.assert_close(found.loc, expected)
    error = found.scale / samples.std(0) - 1
    shift = (found.loc - samples.mean(0)).abs() / samples.std(0)
    if name == "boolean":  # among the worst of them
        assert_states(shift.max().item(), 0.3)
        assert_states(error.abs().mean().item(), 0.05)
        assert_states(error.abs().max().item(), 0.16)
        independent = moments_of(attend, *(Gaussian(x.loc, x.variance, "taylor") for x in inputs))
        first_order = independent.scale / samples.std(0) - 1
        assert_states(first_order.abs().mean().item(), 0.16)
        assert_states(first_order.max().item() + 1, 3.0)
    assert shift.max().item() <= 0.3
    assert error.abs().mean().item() <= 0.05
    assert error.abs().max().item() <= 0.16


def by_rules(q: Any, k: Any, v: Any, mask: Tensor | None = None) -> Any:
    """Attention written as products and a softmax, as a user would."""
    scores = (q @ k.transpose(-2, -1)) / q.shape[-1] ** 0.5
    return (scores if mask is None else scores + mask).softmax(-1) @ v


def taylor(*values: Gaussian) -> list[Any]:
    return [Gaussian(x.loc, x.variance, "taylor") for x in values]


def test_attention_to_first_order_is_the_composition_of_its_rules() -> None:
    q, k, v = taylor(*triple(0.5))
    inputs: tuple[Any, Any, Any] = q, k, v
    mask = torch.zeros(4, 5).double().masked_fill(~KEEP, -torch.inf)
    attend: Function = F.scaled_dot_product_attention
    for found, expected in (
        (attend(*inputs), by_rules(*inputs)),
        (attend(*inputs, attn_mask=KEEP), by_rules(*inputs, mask)),
        (attend(*inputs, attn_mask=mask), by_rules(*inputs, mask)),
    ):
        torch.testing.assert_close(found.loc, expected.loc)
        torch.testing.assert_close(found.variance, expected.variance)


def test_attention_has_the_gradient_of_its_output_by_the_scores() -> None:
    """`sum_j (do / ds_j)^2 v_j` by autograd, for certain values."""
    q, k, v = triple(0.3, heads=1)
    scores = ((q @ k.transpose(-2, -1)) / 6**0.5)[0, 0]
    slopes = torch.autograd.functional.jacobian(lambda s: s.softmax(-1) @ v.loc[0, 0], scores.loc)
    expected = torch.einsum("ioij,ij->io", slopes.square(), scores.variance)
    found: Any = F.scaled_dot_product_attention(q, k, v.loc)
    torch.testing.assert_close(found.variance[0, 0], expected)


def test_masked_keys_do_not_matter() -> None:
    q, k, v = triple(0.5)
    keep = torch.tensor([True, True, True, False, False])
    found: Any = F.scaled_dot_product_attention(q, k, v, attn_mask=keep.expand(4, 5))
    short: Any = F.scaled_dot_product_attention(q, k[..., :3, :], v[..., :3, :])
    torch.testing.assert_close(found.loc, short.loc)
    torch.testing.assert_close(found.variance, short.variance)


def test_a_query_without_any_key_attends_to_nothing() -> None:
    """As torch: zeros, and gradients that are numbers."""
    q, k, v = triple(0.5)
    keep = KEEP.clone()
    keep[1] = False
    attend: Function = F.scaled_dot_product_attention
    mean, variance = q.loc.requires_grad_(), q.variance.requires_grad_()
    for mask in (keep, torch.zeros(4, 5).double().masked_fill(~keep, -torch.inf)):
        found = attend(Gaussian(mean, variance), k, v, attn_mask=mask)
        torch.testing.assert_close(found.loc, F.scaled_dot_product_attention(mean, k.loc, v.loc, attn_mask=mask))
        assert not found.variance[..., 1, :].any()
        for gradient in torch.autograd.grad((found.loc + found.variance).sum(), (mean, variance)):
            assert bool(gradient.isfinite().all())


@over("certain_parts", [(0, 1), (0, 2), (1, 2), (2,)])
def test_any_of_the_three_may_be_certain(certain_parts: tuple[int, ...]) -> None:
    """Exact for certain queries and keys, where the output is a linear map."""
    inputs = [x.loc if i in certain_parts else x for i, x in enumerate(triple(0.3))]
    found: Any = F.scaled_dot_product_attention(*inputs)
    error = found.scale / sampled(F.scaled_dot_product_attention, *inputs, count=20_000).std(0) - 1
    limit = 5 / 40_000**0.5 if certain_parts == (0, 1) else 0.35
    assert error.abs().mean().item() < limit


def test_grouped_queries_repeat_keys_and_values() -> None:
    q = triple(0.5, heads=4)[0]
    k, v = triple(0.5, heads=2)[1:]
    found: Any = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    expected: Any = F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    plain = F.scaled_dot_product_attention(q.loc, k.loc, v.loc, enable_gqa=True)
    torch.testing.assert_close(found.loc, plain)
    torch.testing.assert_close(found.variance, expected.variance)


def test_dropout_on_the_weights_adds_variance_to_certain_inputs() -> None:
    q, k, v = (x.loc for x in triple(0.3))
    sure: Any = Gaussian(v, torch.zeros_like(v))
    found: Any = F.scaled_dot_product_attention(q, k, sure, dropout_p=0.3)
    torch.manual_seed(0)
    samples = F.scaled_dot_product_attention(*(part.expand(100_000, -1, -1, -1) for part in (q, k, v)), dropout_p=0.3)
    assert_moments(samples, found.loc[0], found.variance[0])


def attention(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(6, 2, **options).double().eval()
    if layer.in_proj_bias is not None:
        nn.init.normal_(layer.in_proj_bias)
    return layer


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]] = {
    "length-first": ({}, {}, (4, 3, 6)),
    "batch-first": ({"batch_first": True}, {}, (3, 4, 6)),
    "unbatched": ({}, {}, (4, 6)),
    "unbatched-padding": ({}, {"key_padding_mask": torch.tensor([False, True, False, True])}, (4, 6)),
    "no-bias": ({"bias": False}, {}, (4, 3, 6)),
    "other-widths": ({"kdim": 6, "vdim": 6, "batch_first": True}, {}, (3, 4, 6)),
    "padding": ({}, {"key_padding_mask": torch.arange(4) >= torch.tensor([[4], [2], [1]])}, (4, 3, 6)),
    "boolean": ({}, {"attn_mask": ~KEEP[:, :4]}, (4, 3, 6)),
    "floating": ({}, {"attn_mask": certain(4, 4)}, (4, 3, 6)),
    "per-head": ({}, {"attn_mask": certain(6, 4, 4)}, (4, 3, 6)),
    "causal": ({}, {"attn_mask": torch.ones(4, 4).bool().triu(1), "is_causal": True}, (4, 3, 6)),
    "both": (
        {"batch_first": True},
        {"attn_mask": ~KEEP[[0, 1, 3, 3], :4], "key_padding_mask": torch.tensor([[False, False, False, True]] * 3)},
        (3, 4, 6),
    ),
}


@over("name", SHAPES)
@each("gradients", [True, False])
def test_plain_multi_head_attention_takes_an_uncertain_input(name: str, gradients: bool) -> None:
    """Also without gradients, where torch looks for its fused kernel."""
    build, options, shape = SHAPES[name]
    layer, x = attention(**build), uncertain(*shape, scale=1e-4)
    with torch.set_grad_enabled(gradients):
        found, weights = layer(x, x, x, need_weights=False, **options)
    assert weights is None and isinstance(found, Gaussian)
    expected = layer(x.loc, x.loc, x.loc, need_weights=False, **options)[0]
    torch.testing.assert_close(found.loc, expected)
    samples = sampled(lambda x: layer(x, x, x, need_weights=False, **options)[0], x, count=2000)
    ratio = (found.scale / samples.std(0)).mean().item()
    assert 0.85 < ratio < 1.15  # queries, keys and values of one input count as independent


def test_attention_over_another_input_may_have_certain_queries() -> None:
    layer, x = attention(batch_first=True), uncertain(2, 5, 6)
    found: Any = layer(certain(2, 3, 6), x, x, need_weights=False)[0]
    assert found.shape == (2, 3, 6)


@pytest.mark.parametrize(
    ("build", "options"),
    [({}, {}), ({"add_bias_kv": True}, {"need_weights": False}), ({"add_zero_attn": True}, {"need_weights": False})],
)
def test_rarer_options_of_plain_attention_are_refused(build: dict[str, Any], options: dict[str, Any]) -> None:
    x = uncertain(4, 3, 6)
    message = r"no moment rule for `multi_head_attention_forward` with need_weights.*call the layer with need_weights=F"
    with pytest.raises(TypeError, match=message):
        attention(**build)(x, x, x, **options)
