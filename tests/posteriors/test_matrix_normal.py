"""Correlated rows and columns."""

from __future__ import annotations

import math

import pytest
import torch

from bayeslim.posteriors import MatrixNormal
from bayeslim.posteriors.matrix_normal import cholesky
from contracts.dense import covariance
from contracts.members import perturbed


def test_covariance_is_the_product_of_row_and_column_covariance() -> None:
    """`Cov[W_ji, W_lk] = B_jl A_ik`, with `j, l` outputs and `i, k` inputs."""
    posterior = perturbed("MatrixNormal", (3, 4))
    assert isinstance(posterior, MatrixNormal)
    row, column = cholesky(posterior.out_factor), cholesky(posterior.in_factor)
    b, a = row @ row.T, column @ column.T
    expected = torch.einsum("jl,ik->jilk", b, a).reshape(12, 12)
    torch.testing.assert_close(covariance(posterior), expected, rtol=1e-12, atol=1e-12)


def test_initial_scale_has_no_correlation() -> None:
    posterior = MatrixNormal(torch.zeros(3, 2, 2, dtype=torch.float64), scale=0.1)
    torch.testing.assert_close(covariance(posterior), 0.01 * torch.eye(12).double())
    assert posterior.total_correlation().item() == 0


def test_factors_are_lower_triangular_with_a_positive_diagonal() -> None:
    raw = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    factor = cholesky(raw)
    assert torch.equal(factor.triu(1), torch.zeros(4, 4))
    assert torch.equal(factor.tril(-1), raw.tril(-1))
    assert torch.equal(factor.diagonal(), raw.diagonal().exp())


def test_parameter_count() -> None:
    posterior = MatrixNormal(torch.zeros(5, 7))
    used = sum(int(cholesky(factor).count_nonzero()) for factor in (posterior.in_factor, posterior.out_factor))
    assert used == 5 + 7  # only diagonals at the start
    assert posterior.in_factor.shape == (7, 7)
    assert posterior.out_factor.shape == (5, 5)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`init` must have at least 2 axes, got shape \(3,\).*MeanField"):
        MatrixNormal(torch.zeros(3))
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"`scale` must be positive, got"):
            MatrixNormal(torch.zeros(3, 3), scale=scale)
