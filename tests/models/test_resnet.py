"""Residual networks."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayeslim.models import resnet18, resnet34, resnet50, resnet_k_tied
from bayeslim.models.resnet import BasicBlock, PreActivationBlock

from .checks import (
    check_batches,
    check_compile,
    check_gradients,
    check_module,
    check_vmap,
    image,
    parameters,
)

small = functools.partial(resnet18, width=4)
X = image(3, 3, 8, 8)


def k_tied_parts() -> tuple[list[Tensor], int, int]:
    """Kernels, number of biases and number of normalised channels of `resnet_k_tied`."""
    with torch.device("meta"):
        modules = list(resnet_k_tied().modules())
    layers = [m for m in modules if isinstance(m, (nn.Conv2d, nn.Linear))]
    biases = sum(m.bias.numel() for m in layers if m.bias is not None)
    channels = sum(m.num_features for m in modules if isinstance(m, nn.BatchNorm2d))
    return [m.weight for m in layers], biases, channels


def test_counts() -> None:
    # Of the widely used CIFAR implementations of both networks.
    assert parameters(resnet18) == 11_173_962
    assert parameters(resnet34) == 21_282_122
    assert parameters(resnet50) == 25_557_032  # torchvision's
    assert parameters(lambda: resnet34(classes=100)) == 21_282_122 + 90 * 513


def test_counts_of_the_k_tied_paper() -> None:
    kernels, biases, channels = k_tied_parts()
    weights = sum(kernel.numel() for kernel in kernels)
    assert (weights, biases, channels) == (4_901_568, 2_954, 1_984)
    # 4 per channel: weight, bias, running mean, running variance.
    assert 2 * weights + biases + 4 * channels == 9_814_026
    factor = sum(kernel[0].numel() + len(kernel) for kernel in kernels)  # fan_in + out
    tied = [weights + k * factor + biases + 4 * channels for k in (1, 2, 3)]
    assert tied == [4_929_711, 4_946_964, 4_964_217]
    assert sum(kernel.shape[-2:] == (3, 3) for kernel in kernels) == 9


def norm(module: nn.Module, x: Tensor) -> Tensor:
    """Batch normalisation in training, written out."""
    assert isinstance(module, nn.BatchNorm2d)
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    scale, shift = module.weight[:, None, None], module.bias[:, None, None]
    return (x - mean) / (variance + module.eps).sqrt() * scale + shift


@pytest.mark.parametrize(("out", "stride"), [(4, 1), (6, 1), (4, 2), (6, 2)])
def test_blocks_are_the_formula(out: int, stride: int) -> None:
    torch.manual_seed(0)
    x = image(2, 4, 6, 6).double()
    block = BasicBlock(4, out, stride).double()
    hidden = norm(block.norm1, F.conv2d(x, block.conv1.weight, None, stride, 1)).relu()
    main = norm(block.norm2, F.conv2d(hidden, block.conv2.weight, None, 1, 1))
    shortcut = x
    if (out, stride) == (4, 1):
        assert isinstance(block.shortcut, nn.Identity)
    else:
        assert isinstance(block.shortcut, nn.Sequential)
        weight = block.shortcut[0].weight
        assert isinstance(weight, Tensor)
        sampled = x[:, :, ::stride, ::stride]
        shortcut = norm(block.shortcut[1], torch.einsum("oi,bihw->bohw", weight[:, :, 0, 0], sampled))
    torch.testing.assert_close(block(x), (main + shortcut).relu())

    block = PreActivationBlock(4, out, stride).double()
    active = norm(block.norm1, x).relu()
    conv1, conv2, projection = block.conv1, block.conv2, block.projection
    hidden = norm(block.norm2, F.conv2d(active, conv1.weight, conv1.bias, stride, 1)).relu()
    expected = F.conv2d(hidden, conv2.weight, conv2.bias, 1, 1) + F.conv2d(
        active, projection.weight, projection.bias, stride
    )
    torch.testing.assert_close(block(x), expected)


def test_normalisation_of_the_k_tied_network_is_that_of_keras() -> None:
    norms = [module for module in resnet_k_tied().modules() if isinstance(module, nn.BatchNorm2d)]
    assert {(module.eps, module.momentum) for module in norms} == {(1e-3, 0.01)}


def test_shapes() -> None:
    x = image(2, 3, 32, 32)
    assert small()(x).shape == (2, 10)
    assert resnet34(classes=7, width=4)(x).shape == (2, 7)
    assert resnet50(classes=7, width=4)(x).shape == (2, 7)
    assert small().eval()(x[:1, :, :5, :9]).shape == (1, 10)
    assert small().get_submodule("blocks")(torch.zeros(2, 4, 32, 32)).shape == (2, 32, 4, 4)
    assert resnet_k_tied(classes=7)(x).shape == (2, 7)


def test_plain_networks() -> None:
    for check in (check_module, check_gradients, check_vmap, check_compile, check_batches):
        check(small, X)
    for check in (check_module, check_gradients):
        check(functools.partial(resnet34, width=4), X)


def test_plain_network_of_the_k_tied_paper() -> None:
    x = image(2, 3, 32, 32)
    for check in (check_module, check_gradients, check_compile):
        check(resnet_k_tied, x)


def test_block_of_the_k_tied_paper_under_vmap() -> None:
    check_vmap(functools.partial(PreActivationBlock, 3, 5, 2), X)
