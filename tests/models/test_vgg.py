"""The VGG-like network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bayeslim.models import vgg_like

from .checks import (
    check_batches,
    check_compile,
    check_gradients,
    check_module,
    check_vmap,
    image,
    parameters,
)

X = image(3, 3, 32, 32)


def narrow() -> nn.Sequential:
    return vgg_like(width=0.125)


def narrow_without_dropout() -> nn.Sequential:
    return vgg_like(width=0.125, dropout=False)


def test_counts() -> None:
    # VGG-16's convolutions have 14 714 688 parameters with and 4 224 fewer without biases.
    weights = 14_714_688 - 4_224 + 512 * 512 + 512 * 10
    assert weights == 14_977_728
    assert parameters(vgg_like) == weights + 2 * (4_224 + 512) + 10
    assert parameters(lambda: vgg_like(classes=100)) == weights + 2 * (4_224 + 512) + 90 * 512 + 100


def test_layers_in_order() -> None:
    letters = {nn.Conv2d: "c", nn.BatchNorm2d: "b", nn.BatchNorm1d: "b", nn.ReLU: "r"}
    letters |= {nn.Dropout: "d", nn.MaxPool2d: "M", nn.Flatten: "F", nn.Linear: "l"}
    text = "".join(letters[type(module)] for module in narrow())
    double, triple = "cbrdcbrM", "cbrdcbrdcbrM"
    assert text == 2 * double + 3 * triple + "Flbrdl"
    rates = [module.p for module in narrow() if isinstance(module, nn.Dropout)]
    assert rates == [0.3, *[0.4] * 7, 0.5]
    assert {m.eps for m in narrow() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d))} == {1e-3}
    widths = [m.out_channels for m in vgg_like(width=0.5) if isinstance(m, nn.Conv2d)]
    assert widths == [32, 32, 64, 64, 128, 128, 128, *[256] * 6]


def test_without_dropout_it_takes_the_same_weights() -> None:
    with_dropout, without = narrow(), narrow_without_dropout()
    assert not any(isinstance(module, nn.Dropout) for module in without)
    without.load_state_dict(with_dropout.state_dict())
    assert torch.equal(with_dropout.eval()(X), without.eval()(X))
    assert torch.equal(without.train()(X), without(X))
    assert not torch.equal(with_dropout.train()(X), with_dropout(X))


def test_shapes() -> None:
    assert narrow()(X).shape == (3, 10)
    assert vgg_like(classes=7, width=1 / 64).eval()(X[:1]).shape == (1, 7)


@pytest.mark.parametrize("width", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_width(width: float) -> None:
    with pytest.raises(ValueError, match="`width` must be at least 1/64"):
        vgg_like(width=width)


def test_plain_network() -> None:
    for check in (check_module, check_gradients, check_vmap, check_compile, check_batches):
        check(narrow, X)
