"""Sparsity against counting by hand."""

import functools
import math

import pytest
import torch
from torch import nn

import bayeslim as bl
from bayeslim.posteriors import MeanField


def with_log_alpha(layer: bl.layers.BayesLayer, values: torch.Tensor) -> bl.layers.BayesLayer:
    """Set `ln alpha` of every weight: mean 2 of random sign, `scale = |mean| exp(ln alpha / 2)`."""
    assert isinstance(layer.weight, MeanField)
    with torch.no_grad():
        layer.weight.loc.copy_(2.0 * torch.sign(torch.randn_like(layer.weight.loc)))
        layer.weight.log_scale.copy_((math.log(2.0) + 0.5 * values).view_as(layer.weight.log_scale))
    return layer


def test_the_part_above_the_threshold_is_counted() -> None:
    torch.manual_seed(0)
    values = torch.linspace(-10, 10, 24)
    layer = with_log_alpha(bl.layers.Linear(6, 4), values)
    for threshold in (-20.0, -3.0, 0.0, 3.0, 7.7, 20.0):
        expected = float((values > threshold).sum()) / 24
        assert bl.sparsity(layer, threshold) == pytest.approx(expected)
    assert bl.sparsity(layer) == bl.sparsity(layer, 3.0)


def test_layers_are_named_and_weighted_by_their_size() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        with_log_alpha(bl.layers.Linear(4, 5), torch.full((20,), 5.0)),
        nn.Linear(5, 5),
        nn.Unflatten(1, (5, 1)),
        with_log_alpha(bl.layers.Conv1d(5, 4, 1), torch.tensor([5.0] * 4 + [-5.0] * 16)),
    )
    assert bl.named_sparsity(model) == {"0": 1.0, "3": pytest.approx(0.2)}
    assert bl.sparsity(model) == pytest.approx((20 + 4) / 40)


def test_biases_do_not_count() -> None:
    layer = bl.layers.Linear(2, 2, bias_posterior=functools.partial(MeanField, scale=100.0))
    assert bl.sparsity(with_log_alpha(layer, torch.full((4,), -5.0))) == 0.0


def test_graves_rule_is_the_threshold_of_0_37() -> None:
    """`|mean| / std < 0.83` is `ln alpha > -2 ln 0.83 = 0.373`."""
    torch.manual_seed(0)
    layer = bl.layers.Linear(50, 40, posterior=functools.partial(MeanField, scale=0.2))
    ratio = layer.weight.mean().abs() / layer.weight.variance().sqrt()
    assert bl.sparsity(layer, -2 * math.log(0.83)) == pytest.approx((ratio < 0.83).double().mean().item())
    assert bl.sparsity(layer, 0.37) == pytest.approx(bl.sparsity(layer, 0.373), abs=0.005)


def test_networks_without_bayes_have_none() -> None:
    assert bl.sparsity(nn.Linear(2, 2)) == 0.0
    assert bl.named_sparsity(nn.Linear(2, 2)) == {}


def test_exact_zeros_and_huge_scales_are_counted_not_nan() -> None:
    layer = bl.layers.Linear(2, 2)
    assert isinstance(layer.weight, MeanField)
    with torch.no_grad():
        layer.weight.loc.copy_(torch.tensor([[0.0, 1.0], [1e30, 0.0]]))
        layer.weight.log_scale.copy_(torch.tensor([[-5.0, 40.0], [-60.0, -60.0]]))
    # 0 counts as |mean| = 1e-8: noise beside exp(-5), signal beside exp(-60).
    assert bl.sparsity(layer) == 0.5


def test_a_layer_in_two_places_counts_once() -> None:
    torch.manual_seed(0)
    shared = with_log_alpha(bl.layers.Linear(3, 3), torch.full((9,), 5.0))
    other = with_log_alpha(bl.layers.Linear(3, 3), torch.full((9,), -5.0))
    assert bl.sparsity(nn.Sequential(shared, shared, other)) == 0.5
