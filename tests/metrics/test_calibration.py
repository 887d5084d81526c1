"""Calibration against torchmetrics and scikit-learn, and coverage of exact intervals."""

import dataclasses
import doctest
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.calibration import calibration_curve
from torch import Tensor

from bayeslim.metrics import (
    calibration,
    expected_calibration_error,
    interval_coverage,
    interval_width,
    reliability_curve,
)

with warnings.catch_warnings():  # its optional imports may use deprecated names
    warnings.simplefilter("ignore")
    from torchmetrics.functional.classification import multiclass_calibration_error

DTYPES = [torch.float32, torch.float64]


def predictions(
    count: int = 500, classes: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=dtype)
    labels = torch.multinomial((0.5 * logits).softmax(1), 1, generator=generator).squeeze(1)
    return logits.softmax(1), labels  # overconfident by a temperature of 2


def two_columns(confidence: list[float], dtype: torch.dtype = torch.float64) -> Tensor:
    first = torch.tensor(confidence, dtype=dtype)
    return torch.stack([first, 1 - first], dim=1)


def test_docstring_examples() -> None:
    assert doctest.testmod(calibration).failed == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bins", [1, 7, 15, 100])
def test_ece_matches_torchmetrics(dtype: torch.dtype, bins: int) -> None:
    probabilities, labels = predictions(dtype=dtype)
    expected = multiclass_calibration_error(probabilities, labels, num_classes=4, n_bins=bins, norm="l1").item()
    ours = expected_calibration_error(probabilities, labels, bins)
    assert ours == pytest.approx(expected, rel=1e-5)  # torchmetrics computes in float32
    assert ours > 0.05


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bins", [1, 7, 15, 100])
def test_ece_matches_a_plain_loop(dtype: torch.dtype, bins: int) -> None:
    probabilities, labels = predictions(dtype=dtype)
    members: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(probabilities.tolist(), labels.tolist(), strict=True):
        confidence = max(row)
        inside = (confidence, row.index(confidence) == label)
        members.setdefault(math.ceil(confidence * bins), []).append(inside)
    expected = sum(abs(sum(hit - p for p, hit in inside)) for inside in members.values())
    ours = expected_calibration_error(probabilities, labels, bins)
    assert ours == pytest.approx(expected / len(labels), rel=1e-12)


def test_ece_default_is_fifteen_bins() -> None:
    probabilities, labels = predictions()
    fifteen = expected_calibration_error(probabilities, labels, 15)
    assert expected_calibration_error(probabilities, labels) == fifteen
    assert fifteen != expected_calibration_error(probabilities, labels, 14)
    assert len(reliability_curve(probabilities, labels).count) == 15


def test_ece_keeps_certainty_in_the_last_bin_unlike_torchmetrics() -> None:
    probabilities, labels = two_columns([0.98, 1.0]), torch.tensor([0, 1])
    ours = expected_calibration_error(probabilities, labels)
    assert ours == pytest.approx(0.49, rel=1e-12)  # one bin: |1/2 - 0.99|
    theirs = multiclass_calibration_error(probabilities, labels, num_classes=2, n_bins=15).item()
    assert theirs == pytest.approx(0.51, rel=1e-6)  # two bins: |1 - 0.98| / 2 + |0 - 1| / 2


def test_ece_of_perfect_and_worst_predictions() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    assert expected_calibration_error(torch.eye(3)[labels], labels) == 0.0
    assert expected_calibration_error(torch.eye(3)[(labels + 1) % 3], labels) == 1.0
    base_rate = torch.full((4, 2), 0.5)  # calibrated, though it knows nothing
    assert expected_calibration_error(base_rate, torch.tensor([0, 1, 0, 1])) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bins", [1, 10, 15, 60])
def test_reliability_curve_matches_sklearn(dtype: torch.dtype, bins: int) -> None:
    probabilities, labels = predictions(dtype=dtype)
    confidence, predicted = probabilities.double().max(1)
    accuracy, mean_confidence = calibration_curve((predicted == labels).numpy(), confidence.numpy(), n_bins=bins)
    curve = reliability_curve(probabilities, labels, bins)
    kept = curve.count > 0
    assert curve.confidence[kept].tolist() == pytest.approx(mean_confidence.tolist(), rel=1e-12)
    assert curve.accuracy[kept].tolist() == pytest.approx(accuracy.tolist(), rel=1e-12)
    assert int(curve.count.sum()) == len(labels)
    histogram = torch.histc(confidence, bins, 0, 1)  # closed on the other side: same off the edges
    assert curve.count.tolist() == histogram.tolist()


def test_empty_bins_are_zero_and_not_nan() -> None:
    curve = reliability_curve(two_columns([0.9, 0.8]), torch.tensor([0, 1]), bins=5)
    assert curve.count.tolist() == [0, 0, 0, 1, 1]
    assert curve.confidence.tolist() == [0, 0, 0, 0.8, 0.9]
    assert curve.accuracy.tolist() == [0, 0, 0, 0, 1]
    assert curve.edges.tolist() == [0, 0.2, 0.4, 0.6, 0.8, 1]


@pytest.mark.parametrize("dtype", [torch.float16, *DTYPES])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below(dtype: torch.dtype) -> None:
    probabilities = two_columns([0.6, 0.7, 0.8, 0.9, 1.0], dtype)
    curve = reliability_curve(probabilities, torch.zeros(5, dtype=torch.long), bins=10)
    assert curve.count.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_a_confidence_rounded_above_one_belongs_to_the_last_bin() -> None:
    probabilities = torch.tensor([[1.0005, 0.0]])
    curve = reliability_curve(probabilities, torch.tensor([0]), bins=3)
    assert curve.count.tolist() == [0, 0, 1]


def test_curve_carries_no_gradient() -> None:
    probabilities, labels = predictions()
    curve = reliability_curve(probabilities.requires_grad_(), labels)
    assert not curve.confidence.requires_grad
    assert not curve.accuracy.requires_grad


def test_curve_is_frozen() -> None:
    curve = reliability_curve(*predictions())
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.count = curve.count  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_coverage_and_width_of_exact_intervals(dtype: torch.dtype, level: float) -> None:
    generator = torch.Generator().manual_seed(3)
    y = torch.randn(200, 200, generator=generator, dtype=dtype)
    low, high = stats.norm.interval(level)
    lower, upper = torch.full_like(y, low), torch.full_like(y, high)
    standard_error = math.sqrt(level * (1 - level) / y.numel())
    assert abs(interval_coverage(lower, upper, y) - level) < 5 * standard_error
    assert interval_width(lower, upper) == pytest.approx(high - low, rel=1e-6)


def test_coverage_includes_the_ends() -> None:
    lower, upper = torch.zeros(5), torch.ones(5)
    y = torch.tensor([-0.1, 0.0, 0.5, 1.0, 1.1])
    assert interval_coverage(lower, upper, y) == 0.6
    assert interval_coverage(y, y, y) == 1.0
    assert interval_width(y, y) == 0.0
    assert interval_coverage(lower + 5, upper + 5, y) == 0.0


GOOD = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
LABELS = torch.tensor([0, 1])
ONES = torch.ones(3)
MIXED = torch.tensor([2.0, 0.0, 2.0])
BROKEN = torch.tensor([1.0, math.nan, 1.0])


@pytest.mark.parametrize("metric", [expected_calibration_error, reliability_curve])
@pytest.mark.parametrize("bins", [0, -3, 2.5, True])
def test_bad_bins(metric: Callable[[Tensor, Tensor, float], object], bins: float) -> None:
    message = f"`bins` must be an integer >= 1, got {bins}: pass e.g. 15"
    with pytest.raises(ValueError, match=re.escape(message)):
        metric(GOOD, LABELS, bins)


def test_bins_may_be_numpys() -> None:
    bins: Any = np.int64(4)
    assert expected_calibration_error(GOOD, LABELS, bins) == expected_calibration_error(GOOD, LABELS, 4)


@pytest.mark.parametrize("metric", [expected_calibration_error, reliability_curve])
def test_bad_class_inputs(metric: Callable[[Tensor, Tensor], object]) -> None:
    with pytest.raises(ValueError, match=re.escape("`probabilities` must be (N, C) with C >= 2")):
        metric(GOOD[:, 0], LABELS)
    with pytest.raises(ValueError, match=r"`probabilities` must sum to 1 .* pass softmax"):
        metric(2 * GOOD, LABELS)
    with pytest.raises(ValueError, match=re.escape("`labels` must lie in 0..1, got 1..2")):
        metric(GOOD, LABELS + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: interval_width(ONES, ONES[:1]),
            "`upper` must have the shape of `lower` (3,), got",
        ),
        (
            lambda: interval_width(ONES, 0 * ONES),
            "`upper` must be >= `lower` everywhere, got a wid",
        ),
        (lambda: interval_width(ONES, MIXED), "`upper` must be >= `lower` everywhere, got a wid"),
        (lambda: interval_width(ONES, -ONES), "got a width of -2: were the two swapped?"),
        (lambda: interval_width(BROKEN, ONES), "`lower` must be finite, got nan at index (1,)"),
        (lambda: interval_width(ONES, BROKEN), "`upper` must be finite, got nan at index (1,)"),
        (lambda: interval_width(ONES[:0], ONES[:0]), "`lower` must not be empty, got shape (0,)"),
        (lambda: interval_coverage(ONES, 0 * ONES, ONES), "`upper` must be >= `lower` everywhere"),
        (
            lambda: interval_coverage(ONES, ONES, ONES[:1]),
            "`y` must have the shape of `lower` (3,)",
        ),
        (
            lambda: interval_coverage(ONES, ONES, BROKEN),
            "`y` must be finite, got nan at index (1,)",
        ),
    ],
)
def test_bad_intervals(call: Callable[[], float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
