"""The transformer classifier."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayeslim.convert import bayesianize_
from bayeslim.estimators import weight_sample
from bayeslim.models import TransformerClassifier
from bayeslim.models.transformer import encoder_layer, gelu, relu, sinusoidal_positions

from .checks import check_batches, check_compile, check_gradients, check_module, check_vmap, parameters

small = functools.partial(TransformerClassifier, 30, dim=8, heads=2, hidden=12, classes=3, max_length=9)
masked = functools.partial(small, padding_mask=True, layers=2)


def tokens() -> Tensor:
    return torch.randint(1, 30, (4, 7), generator=torch.Generator().manual_seed(0))


def attention(module: nn.Module, x: Tensor, keep: Tensor | None = None) -> Tensor:
    """Multi-head attention of (batch, time, dim), written out; `keep` (batch, time) marks the keys to use."""
    assert isinstance(module, nn.MultiheadAttention)
    projected = x @ module.in_proj_weight.T
    if module.in_proj_bias is not None:
        projected = projected + module.in_proj_bias
    heads = []
    width = module.embed_dim // module.num_heads
    for q, k, v in zip(*(part.split(width, -1) for part in projected.chunk(3, -1)), strict=True):
        score = q @ k.mT / math.sqrt(width)
        if keep is not None:
            score = score.masked_fill(~keep[:, None], -math.inf)
        heads.append(score.softmax(-1) @ v)
    return torch.cat(heads, -1) @ module.out_proj.weight.T + module.out_proj.bias


def post_norm(layer: nn.Module, x: Tensor, keep: Tensor | None = None) -> Tensor:
    assert isinstance(layer, nn.TransformerEncoderLayer)
    x = layer.norm1(x + attention(layer.self_attn, x, keep))
    hidden = F.linear(x, layer.linear1.weight, layer.linear1.bias).relu()
    return layer.norm2(x + F.linear(hidden, layer.linear2.weight, layer.linear2.bias))


def test_counts() -> None:
    # The dissertation's notebook reports 56 674 with the log variances of the two feed-forward matrices.
    assert parameters(lambda: TransformerClassifier(1119)) == 56_674 - 2 * 32 * 128
    assert parameters(lambda: TransformerClassifier(1119, qkv_bias=True)) == 48_482 + 3 * 32


def test_positions_are_the_formula() -> None:
    code = sinusoidal_positions(5, 6).double()
    for position in range(1, 6):
        for row in (0, 2, 4):
            angle = position / 10000 ** (row / 6)
            assert code[position - 1, row].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert code[position - 1, row + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("dim", [0, 7])
def test_positions_need_an_even_width(dim: int) -> None:
    with pytest.raises(ValueError, match="`dim` must be even"):
        sinusoidal_positions(3, dim)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_forward_is_the_formula(qkv_bias: bool) -> None:
    torch.manual_seed(1)
    model, words = small(qkv_bias=qkv_bias).double().eval(), tokens()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    x = post_norm(model.layers[0], model.embedding.weight[words] + model.positions[:7])
    expected = x.mean(1) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(words), expected)
    with torch.no_grad():
        torch.testing.assert_close(model(words), expected)


def test_masked_forward_is_the_formula() -> None:
    torch.manual_seed(2)
    model, words = masked().double().eval(), tokens()
    words[1, 3:], words[2, 1:] = 0, 0
    x, keep = model.embedding.weight[words] + model.positions[:7], words != 0
    for layer in model.layers:
        x = post_norm(layer, x, keep)
    mean = torch.stack([row[mask].mean(0) for row, mask in zip(x, keep, strict=True)])
    torch.testing.assert_close(model(words), mean @ model.head.weight.T + model.head.bias)


def test_masked_padding_changes_nothing() -> None:
    torch.manual_seed(3)
    model, words = masked().double().eval(), tokens()
    padded = F.pad(words, (0, 2))
    torch.testing.assert_close(model(padded), model(words))
    torch.testing.assert_close(model(padded[0]), model(words)[0])
    unmasked = small().double().eval()
    assert not torch.allclose(unmasked(padded), unmasked(words))


def test_a_document_of_padding_only() -> None:
    torch.manual_seed(4)
    model, words = masked(), tokens()
    words[0] = 0
    output = model(words)
    output.sum().backward()
    torch.testing.assert_close(output[0], model.head.bias)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_dropout_acts_after_positions_and_attention_only() -> None:
    torch.manual_seed(5)
    rates = {name: m.p for name, m in TransformerClassifier(9).named_modules() if isinstance(m, nn.Dropout) and m.p}
    assert rates == {"dropout": 0.1, "layers.0.dropout1": 0.1}
    layer = TransformerClassifier(9, feedforward_dropout=0.2).layers[0]
    assert isinstance(layer, nn.TransformerEncoderLayer)
    assert (layer.dropout2.p, layer.self_attn.dropout) == (0.2, 0.0)
    model, words = small(dropout=0.0), tokens()
    assert torch.equal(model(words), model(words))
    assert not torch.equal(small()(words), small()(words))


def test_shapes() -> None:
    assert small()(tokens()).shape == (4, 3)
    assert small()(tokens()[:1, :1]).shape == (1, 3)
    assert small()(tokens()[0]).shape == (3,)


def test_too_long() -> None:
    with pytest.raises(ValueError, match="at most `max_length` = 9 columns, got 10"):
        small()(torch.ones(2, 10, dtype=torch.long))


def test_heads_must_divide() -> None:
    with pytest.raises(ValueError, match="`dim` must be a multiple of `heads`, got 8 and 3"):
        TransformerClassifier(9, dim=8, heads=3)


@pytest.mark.parametrize("activation", [relu, gelu])
@pytest.mark.parametrize("qkv_bias", [False, True])
def test_converted_feed_forward_is_used_in_eval(activation: Callable[[Tensor], Tensor], qkv_bias: bool) -> None:
    torch.manual_seed(6)
    layer = encoder_layer(8, 2, 12, activation=activation, qkv_bias=qkv_bias)
    converted = bayesianize_(layer, estimator=weight_sample).eval()
    x = torch.randn(3, 5, 8)
    with torch.no_grad():
        assert not torch.equal(converted(x), converted(x))


def test_plain_network() -> None:
    for build in (small, masked, functools.partial(small, qkv_bias=True)):
        for check in (check_module, check_gradients, check_compile, check_batches):
            check(build, tokens())


def test_vmap() -> None:
    # Torch's other attention kernels have no batching rule: they warn and loop.
    with sdpa_kernel(SDPBackend.MATH):
        check_vmap(small, tokens())
        check_vmap(masked, tokens())
