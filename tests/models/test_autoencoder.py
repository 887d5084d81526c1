"""Autoencoders."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn

from bayeslim.models import conv_autoencoder, dense_autoencoder

from .checks import (
    check_batches,
    check_compile,
    check_gradients,
    check_module,
    check_vmap,
    image,
    parameters,
)

X = image(3, 1, 28, 28)


def test_counts() -> None:
    sizes = [784, 256, 32, 256, 784]
    dense = sum((fan_in + 1) * out for fan_in, out in itertools.pairwise(sizes))
    assert parameters(dense_autoencoder) == dense
    down = 16 * (9 + 1) + 32 * (16 * 9 + 1) + 32 * (32 * 49 + 1)
    up = 32 * (32 * 49 + 1) + 16 * (32 * 16 + 1) + 16 * 16 + 1
    assert parameters(conv_autoencoder) == down + up


def test_dense_forward_is_the_formula() -> None:
    model = dense_autoencoder((784, 20, 5))
    w1, b1, w2, b2, w3, b3, w4, b4 = model.parameters()
    code = (X.flatten(1) @ w1.T + b1).relu() @ w2.T + b2
    torch.testing.assert_close(model.get_submodule("encoder")(X), code)
    torch.testing.assert_close(model(X), (code @ w3.T + b3).relu() @ w4.T + b4)


def test_activations_are_mirrored() -> None:
    model = dense_autoencoder((9, 7, 5, 3), ["tanh", "sin"])
    kinds = [type(module).__name__ for module in model.modules() if not list(module.children())]
    there, back = ["Linear", "Tanh", "Linear", "Sin", "Linear"], ["Linear", "Sin", "Linear", "Tanh", "Linear"]
    assert kinds == ["Flatten", *there, *back]
    assert model(torch.zeros(2, 9)).shape == (2, 9)
    assert sum(isinstance(m, nn.ReLU) for m in dense_autoencoder((9, 7, 5, 3)).modules()) == 4


def test_shapes() -> None:
    dense, conv = dense_autoencoder(), conv_autoencoder(code=6, width=4)
    assert dense(X).shape == dense(X.flatten(1)).shape == (3, 784)
    assert dense.get_submodule("encoder")(X).shape == (3, 32)
    assert conv(X).shape == (3, 1, 28, 28)
    assert conv(X[0]).shape == (1, 28, 28)
    assert conv.get_submodule("encoder")(X).shape == (3, 6, 1, 1)


def test_every_input_pixel_reaches_the_code_and_the_code_every_output_pixel() -> None:
    model = conv_autoencoder()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    x = torch.ones(1, 1, 28, 28, requires_grad=True)
    code = model.get_submodule("encoder")(x)
    (gradient,) = torch.autograd.grad(code.sum(), x, retain_graph=True)
    assert (gradient > 0).all()
    assert (model.get_submodule("decoder")(code) > 0.1).all()


def test_bad_sizes() -> None:
    with pytest.raises(ValueError, match="`sizes` must be at least two"):
        dense_autoencoder([784])


@pytest.mark.parametrize("build", [functools.partial(dense_autoencoder, (784, 20, 5)), conv_autoencoder])
def test_plain_networks(build: functools.partial[nn.Module]) -> None:
    for check in (check_module, check_gradients, check_vmap, check_compile, check_batches):
        check(build, X)
