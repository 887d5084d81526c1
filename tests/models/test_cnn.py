"""The CNN of the k-tied paper."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bayeslim.models import cnn_k_tied

from .checks import check_batches, check_compile, check_gradients, check_module, check_vmap, image, parameters

X = image(3, 3, 32, 32)


def test_count_of_the_paper() -> None:
    assert 2 * parameters(cnn_k_tied) == 4_405_320


def test_shapes() -> None:
    assert cnn_k_tied()(X).shape == (3, 100)
    assert cnn_k_tied(classes=7)(X[:1]).shape == (1, 7)


def test_forward_is_the_formula() -> None:
    model = cnn_k_tied(10)
    w1, b1, w2, b2, w3, b3, w4, b4 = model.parameters()
    x = F.max_pool2d(F.conv2d(X, w1, b1, padding="same").relu(), 2)
    x = F.max_pool2d(F.conv2d(x, w2, b2, padding="same").relu(), 2)
    torch.testing.assert_close(model(X), (x.flatten(1) @ w3.T + b3).relu() @ w4.T + b4)


def test_plain_network() -> None:
    for check in (check_module, check_gradients, check_vmap, check_compile, check_batches):
        check(cnn_k_tied, X)
