"""Standard deviations of low rank."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayeslim.ops import LinearOp
from bayeslim.posteriors import KTied, MatrixNormal
from contracts.members import OPS, over, perturbed


@pytest.mark.parametrize(("k", "start"), [(1, -2.302585), (2, -2.649159), (3, -2.851891)])
def test_initial_factors_of_the_paper(k: int, start: float) -> None:
    posterior = KTied(torch.zeros(4, 5, dtype=torch.float64), k=k, scale=0.01, jitter=0.0)
    torch.testing.assert_close(posterior.log_in, torch.full((5, k), start).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.log_out, torch.full((4, k), start).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.scale(), torch.full((4, 5), 0.01).double(), rtol=1e-7, atol=0)


def test_jitter_is_the_std_of_the_initial_noise() -> None:
    torch.manual_seed(0)
    count = 4000
    posterior = KTied(torch.zeros(2, count), k=1, scale=1.0, jitter=0.1)
    assert posterior.log_in.std().item() == pytest.approx(0.1, rel=5 / math.sqrt(2 * count))
    assert posterior.log_in.mean().item() == pytest.approx(0, abs=5 * 0.1 / math.sqrt(count))


def test_scales_follow_the_sum_over_ranks() -> None:
    posterior = perturbed("KTied-2", (4, 2, 3))
    assert isinstance(posterior, KTied)
    expected = torch.zeros(4, 6).double()
    for r in range(2):
        expected += posterior.log_out[:, r].exp().outer(posterior.log_in[:, r].exp())
    torch.testing.assert_close(posterior.scale(), expected.view(4, 2, 3))
    assert torch.linalg.matrix_rank(posterior.scale().flatten(1)).item() == 2


@over("k", [1, 2, 3])
def test_parameter_count(k: int) -> None:
    posterior = KTied(torch.zeros(300, 784), k=k)
    assert sum(p.numel() for p in posterior.parameters()) == 300 * 784 + k * (300 + 784)


def test_rank_one_is_a_diagonal_matrix_normal() -> None:
    tied = perturbed("KTied-1", (3, 4))
    assert isinstance(tied, KTied)
    matrix = MatrixNormal(tied.mean())
    with torch.no_grad():
        matrix.in_factor.copy_(tied.log_in[:, 0].diag())
        matrix.out_factor.copy_(tied.log_out[:, 0].diag())
    torch.testing.assert_close(matrix.variance(), tied.variance())
    assert matrix.total_correlation().item() == pytest.approx(0, abs=1e-12)
    x = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(matrix.output_variance(LinearOp(), x), tied.output_variance(LinearOp(), x))


def test_output_variance_takes_few_filters() -> None:
    """`k (k + 1) / 2` filters while that is fewer than the outputs, all of them otherwise."""
    filters: list[int] = []

    class Counting(LinearOp):
        def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
            filters.append(len(weight))
            return super().__call__(x, weight, bias)

    for k, expected in ((1, 1), (2, 3), (3, 4)):
        perturbed(f"KTied-{k}", (4, 5)).output_variance(Counting(), OPS["linear"].input())
        assert filters.pop() == expected


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`init` must have at least 2 axes, got shape \(3,\).*MeanField"):
        KTied(torch.zeros(3))
    for k in (0, 4):
        with pytest.raises(ValueError, match=rf"`k` must be between 1 and min\(fan_in, out\)=3, got {k}"):
            KTied(torch.zeros(3, 2, 2), k=k)
    for scale in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"`scale` must be positive, got"):
            KTied(torch.zeros(3, 3), scale=scale)
