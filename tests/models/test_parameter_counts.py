"""Parameter counts of the k-tied Normal paper, by converting the networks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

from bayeslim import bayesianize_
from bayeslim.models import LSTMClassifier, cnn_k_tied, mlp, resnet_k_tied
from bayeslim.posteriors import KTied, MeanField


def count(build: Callable[[], nn.Module], buffers: bool = False, **options: Any) -> int:
    """Parameters of the converted network, without the memory; with `buffers` also running averages."""
    with torch.device("meta"):
        model = bayesianize_(build(), **options)
    total = sum(parameter.numel() for parameter in model.parameters())
    if buffers:  # means and variances, not the counters of batches
        total += sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    return total


def tied(k: int) -> Any:
    """Mean-field for k = 0."""
    return functools.partial(KTied, k=k) if k else MeanField


@pytest.mark.parametrize(("k", "expected"), [(0, 957), (1, 482), (2, 484), (3, 486)])
def test_perceptron(k: int, expected: int) -> None:
    """All kernels and biases Bayesian, the biases mean-field; in thousands, as figure 6 has them."""
    found = count(lambda: mlp([784, 400, 400, 10]), posterior=tied(k), bias_posterior=MeanField)
    assert round(found / 1000) == expected
    factors = k * (784 + 400 + 400 + 400 + 400 + 10)
    assert found == (956_820 if k == 0 else 477_600 + factors + 2 * 810)


def test_convolutional_network() -> None:
    assert count(cnn_k_tied, bias_posterior=MeanField) == 4_405_320


@pytest.mark.parametrize(("k", "expected"), [(1, 2_262_188), (2, 2_267_408), (3, 2_272_628)])
def test_convolutional_network_with_tied_dense_kernels(k: int, expected: int) -> None:
    """Only the two dense kernels are tied: 2262, 2268 and 2273 thousand in the paper, give or take one."""
    overrides: Mapping[str, Any] = {name: {"posterior": tied(k)} for name in ("7", "9")}
    found = count(cnn_k_tied, bias_posterior=MeanField, overrides=overrides)
    assert found == expected
    assert abs(found / 1000 - {1: 2262, 2: 2268, 3: 2273}[k]) < 1


@pytest.mark.parametrize(("k", "expected"), [(0, 2_822_913), (1, 2_693_121), (2, 2_694_401), (3, 2_695_681)])
def test_lstm(k: int, expected: int) -> None:
    """The embedding and the biases are point estimates, and the gates have one bias, as in Keras.

    The kernel of the head has one row, which has no rank to tie: 2693, 2694 and 2695 thousand in the paper.
    """

    def recurrent(name: str, module: nn.Module) -> bool:
        return name != "embedding"

    found = count(LSTMClassifier, posterior=tied(k), where=recurrent, overrides={"head": {"posterior": MeanField}})
    assert found == expected
    if k:
        assert found // 1000 == {1: 2693, 2: 2694, 3: 2695}[k]


@pytest.mark.parametrize(("k", "expected"), [(0, 9_814_026), (1, 4_929_711), (2, 4_946_964), (3, 4_964_217)])
def test_residual_network(k: int, expected: int) -> None:
    """Kernels only; the running averages of the batch normalisations count."""
    assert count(resnet_k_tied, buffers=True, posterior=tied(k)) == expected
