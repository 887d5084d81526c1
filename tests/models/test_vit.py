"""Vision transformers."""

from __future__ import annotations

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bayeslim.models import ViT, vit_s16, vit_small
from bayeslim.models.vit import image_positions

from .checks import (
    check_batches,
    check_compile,
    check_gradients,
    check_module,
    check_vmap,
    image,
    parameters,
)
from .test_transformer import attention

small = functools.partial(ViT, image=6, patch=2, channels=2, dim=8, depth=2, heads=2, hidden=12, classes=3)
X = image(4, 2, 6, 6)


def test_counts() -> None:
    # DeiT-S has 22 050 664, with 197 learned positions, a class token and biases of Q, K and V.
    assert parameters(vit_s16) == 22_050_664 - 197 * 384 - 384 - 12 * 3 * 384
    block = 4 * 64 * 64 + 64 + 2 * 64 * 128 + 128 + 64 + 4 * 64
    assert parameters(vit_small) == 50 * 64 + 6 * block + 2 * 64 + 65 * 10
    assert parameters(lambda: ViT(qkv_bias=True)) == parameters(vit_small) + 6 * 3 * 64


def test_positions_are_the_formula() -> None:
    code = image_positions(2, 3, 12).double()
    assert code.shape == (6, 12)
    for row in range(2):
        for column in range(3):
            expected = [
                function(place / 10000 ** (i / 2))
                for place, function in [
                    (column, math.sin),
                    (column, math.cos),
                    (row, math.sin),
                    (row, math.cos),
                ]
                for i in range(3)
            ]
            assert code[3 * row + column].tolist() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("dim", [0, 4, 10])
def test_positions_need_a_multiple_of_4(dim: int) -> None:
    with pytest.raises(ValueError, match="`dim` must be a multiple of 4 and at least 8"):
        image_positions(2, 2, dim)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_forward_is_the_formula(qkv_bias: bool) -> None:
    torch.manual_seed(0)
    model, x = small(qkv_bias=qkv_bias).double().eval(), X.double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    patches = F.unfold(x, 2, stride=2).mT
    tokens = F.linear(patches, model.patches.weight.flatten(1), model.patches.bias) + model.positions
    for layer in model.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        tokens = tokens + attention(layer.self_attn, layer.norm1(tokens))
        hidden = F.gelu(F.linear(layer.norm2(tokens), layer.linear1.weight, layer.linear1.bias))
        tokens = tokens + F.linear(hidden, layer.linear2.weight, layer.linear2.bias)
    expected = model.head(model.norm(tokens.mean(1)))
    torch.testing.assert_close(model(x), expected)
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)


def test_dropout() -> None:
    model = small(dropout=0.5)
    assert sum(isinstance(m, nn.Dropout) and m.p == 0.5 for m in model.modules()) == 2 * 2
    assert not torch.equal(model(X), model(X))
    assert torch.equal(model.eval()(X), model(X))
    without = small()
    assert torch.equal(without(X), without(X))


def test_shapes() -> None:
    assert small()(X).shape == (4, 3)
    assert small()(X[0]).shape == (3,)
    assert vit_small()(image(2, 1, 28, 28)).shape == (2, 10)
    with torch.device("meta"):
        assert vit_s16(classes=7)(torch.zeros(2, 3, 224, 224)).shape == (2, 7)


def test_patch_must_divide() -> None:
    with pytest.raises(ValueError, match="`patch` must divide `image`, got 5 and 28"):
        ViT(patch=5)


def test_plain_network() -> None:
    for build in (small, functools.partial(small, qkv_bias=True)):
        for check in (check_module, check_gradients, check_compile, check_batches):
            check(build, X)


def test_vmap() -> None:
    # Torch's other attention kernels have no batching rule: they warn and loop.
    with sdpa_kernel(SDPBackend.MATH):
        check_vmap(small, X)
