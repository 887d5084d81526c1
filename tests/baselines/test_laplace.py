"""Laplace's approximation, where laplace-torch is installed, against a posterior in closed form."""

from __future__ import annotations

import sys

import pytest
import torch

import bayeslim as bl
from baselines.linear_regression import NOISE, PRIOR_STD, drawn, layer, posterior, problem
from bayeslim.baselines import laplace
from contracts.statistics import assert_covariance, assert_gaussian_moments

GAUSSIAN = bl.likelihoods.Gaussian(noise=NOISE)


def test_linear_regression() -> None:
    """The approximation is exact there."""
    pytest.importorskip("laplace")
    mean, covariance = posterior()
    x, y = problem()
    draws = laplace(layer(), x, y, likelihood=GAUSSIAN, prior_std=PRIOR_STD, structure="full", samples=4000)
    assert_gaussian_moments(drawn(draws), mean, covariance.diagonal())
    assert_covariance(drawn(draws), mean, covariance)


def test_classes() -> None:
    pytest.importorskip("laplace")
    torch.manual_seed(0)
    model, x = bl.models.mlp([2, 8, 3]), torch.randn(30, 2)
    draws = laplace(model, x, torch.arange(30) % 3, likelihood=bl.Categorical(), samples=20)
    assert len(draws) == 20
    assert bl.predict(draws, x).epistemic.min() > 0


def test_without_laplace_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "laplace", None)
    with pytest.raises(ImportError, match="needs laplace-torch, .* in an environment of its own"):
        laplace(layer(), *problem(), likelihood=GAUSSIAN)
