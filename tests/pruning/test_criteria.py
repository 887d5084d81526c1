"""Criteria against their definitions, weight by weight and group by group."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bayeslim.masks import Masked
from bayeslim.posteriors import MeanField
from bayeslim.pruning import LOG_ALPHA, MAGNITUDE, MEAN_SQUARE, RANGE, SIGNAL_TO_NOISE, Criterion

ALL = [LOG_ALPHA, SIGNAL_TO_NOISE, MAGNITUDE, MEAN_SQUARE, RANGE]


def posterior(shape: tuple[int, ...] = (4, 3), seed: int = 0) -> MeanField:
    torch.manual_seed(seed)
    q = MeanField(torch.randn(shape, dtype=torch.float64))
    with torch.no_grad():
        q.log_scale.copy_(torch.randn(shape))
    return q


def test_weight_by_weight() -> None:
    q = posterior()
    mean, std = q.mean(), q.variance().sqrt()
    expected: list[tuple[Criterion, float, Tensor]] = [
        (LOG_ALPHA, 0.5, 2 * (std / mean.abs()).log() <= 0.5),
        (SIGNAL_TO_NOISE, 0.83, mean.abs() / std >= 0.83),
        (MAGNITUDE, 0.4, mean.abs() >= 0.4),
    ]
    for criterion, threshold, keep in expected:
        found = criterion.keep(q, threshold)
        assert 0 < found.sum() < found.numel()
        assert torch.equal(found, keep), criterion.name


def test_graves_and_molchanov_are_one_order() -> None:
    """`|mean| / std < t` is `ln alpha > -2 ln t`."""
    q = posterior((20, 20))
    for t in (0.3, 0.83, 2.0):
        assert torch.equal(SIGNAL_TO_NOISE.keep(q, t), LOG_ALPHA.keep(q, -2 * math.log(t)))


def test_published_thresholds() -> None:
    assert (LOG_ALPHA.threshold, SIGNAL_TO_NOISE.threshold, MAGNITUDE.threshold) == (3.0, 0.83, 1e-2)
    assert (MEAN_SQUARE.threshold, RANGE.threshold) == (1e-3, 1e-2)  # lambda2 of fully connected layers and of CNNs


@pytest.mark.parametrize("criterion", [LOG_ALPHA, SIGNAL_TO_NOISE, MAGNITUDE], ids=lambda c: c.name)
def test_a_group_lives_while_one_of_its_weights_does(criterion: Criterion) -> None:
    q = posterior((5, 4, 2, 2))
    single = criterion.keep(q, 0.8)
    for structure, axes in (("output", (1, 2, 3)), ("input", (0, 2, 3))):
        expected = single.amax(axes, keepdim=True).expand(single.shape)
        assert torch.equal(criterion.keep(q, 0.8, structure), expected)


def test_mean_square_of_a_unit() -> None:
    q = posterior((5, 4))
    column = q.mean().square().mean(0)
    cut = column.median().item()
    assert torch.equal(MEAN_SQUARE.keep(q, cut, "input")[0], column >= cut)


def test_range_of_a_channel_is_not_fooled_by_equal_large_weights() -> None:
    mean = torch.tensor([[0.5, 0.5, 0.5], [0.001, -0.002, 0.003], [0.3, -0.3, 0.0]])
    q = MeanField(mean)
    assert RANGE.scores(q, "output").flatten().tolist() == pytest.approx([0.5, 0.005, 0.6])
    assert RANGE.keep(q, 0.01, "output")[:, 0].tolist() == [True, False, True]


def test_heads_are_blocks_of_outputs() -> None:
    q = posterior((6, 3))
    scores = MAGNITUDE.scores(q, "head", heads=3)
    expected = q.mean().abs().view(3, 6).amax(1).repeat_interleave(2)
    assert torch.equal(scores[:, 0], expected)


@pytest.mark.parametrize("criterion", ALL, ids=lambda c: c.name)
def test_pruned_weights_never_score(criterion: Criterion) -> None:
    mask = torch.ones(4, 3)
    mask[1] = 0
    q = Masked(posterior(), mask)
    assert torch.equal(criterion.scores(q)[1], torch.full((3,), -math.inf).double())
    assert criterion.scores(q, "output")[1].item() == -math.inf
    assert criterion.scores(q, "output")[0].isfinite()


@pytest.mark.parametrize("criterion", [SIGNAL_TO_NOISE, MAGNITUDE, MEAN_SQUARE, RANGE], ids=lambda c: c.name)
def test_a_threshold_of_the_wrong_sign_is_refused(criterion: Criterion) -> None:
    with pytest.raises(ValueError, match=r"`threshold` of .* must not be negative, got -0\.1: its scores start at 0"):
        criterion.cut(-0.1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_threshold_must_be_finite(value: float) -> None:
    for criterion in ALL:
        with pytest.raises(ValueError, match="`threshold` must be a finite float, got"):
            criterion.cut(value)


def test_nan_scores_are_refused() -> None:
    q = posterior()
    with torch.no_grad():
        q.loc[0, 0] = math.nan
    with pytest.raises(ValueError, match="the magnitude scores hold NaN: the posterior has diverged"):
        MAGNITUDE.scores(q)


def test_unknown_structure() -> None:
    with pytest.raises(ValueError, match="`structure` must be one of weight, input, output, head, got 'row'"):
        MAGNITUDE.scores(posterior(), "row")


@pytest.mark.parametrize("criterion", [LOG_ALPHA, SIGNAL_TO_NOISE, MAGNITUDE], ids=lambda criterion: criterion.name)
def test_a_pruned_weight_does_not_keep_its_group_alive(criterion: Criterion) -> None:
    inner = MeanField(torch.tensor([[1e-3] * 3, [1.0] * 3]), scale=0.1)  # ln alpha of the first unit is 9
    q = Masked(inner, torch.tensor([[0.0, 1, 1], [1, 1, 1]]))
    assert criterion.keep(q, structure="output").tolist() == [[False] * 3, [True] * 3]
    heads = criterion.scores(q, "head", heads=2) >= criterion.cut(None)
    assert heads[:, 0].tolist() == [False, True]
