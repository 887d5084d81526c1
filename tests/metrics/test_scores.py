"""Scores against scikit-learn, scipy, quadrature and brute force over pairs."""

import doctest
import itertools
import math
import re
from collections.abc import Callable

import pytest
import torch
from scipy import integrate, stats
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from bayeslim.metrics import (
    accuracy,
    brier,
    crps_gaussian,
    crps_samples,
    gaussian_nll,
    negative_log_likelihood,
    rmse,
    scores,
)
from contracts.cases import each

ClassScore = Callable[[Tensor, Tensor], float]
CLASS_SCORES: list[ClassScore] = [accuracy, negative_log_likelihood, brier]
DTYPES = [torch.float32, torch.float64]


def predictions(
    count: int = 200, classes: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, classes, generator=generator, dtype=dtype)
    return logits.softmax(1), torch.randint(classes, (count,), generator=generator)


def regression(
    shape: tuple[int, ...] = (20,), dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted means, standard deviations and targets."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(shape, generator=generator, dtype=dtype)
    std = torch.rand(shape, generator=generator, dtype=dtype) + 0.2
    return mean, std, mean + 2 * std * torch.randn(shape, generator=generator, dtype=dtype)


def test_docstring_examples() -> None:
    assert doctest.testmod(scores).failed == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_accuracy_matches_sklearn(dtype: torch.dtype) -> None:
    probabilities, labels = predictions(dtype=dtype)
    expected = sklearn_metrics.accuracy_score(labels.numpy(), probabilities.argmax(1).numpy())
    assert accuracy(probabilities, labels) == pytest.approx(expected, abs=1e-12)


def test_accuracy_breaks_ties_by_the_lowest_index() -> None:
    probabilities = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])
    assert accuracy(probabilities, torch.tensor([0, 1])) == 1.0
    assert accuracy(probabilities, torch.tensor([1, 2])) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_nll_matches_sklearn(dtype: torch.dtype) -> None:
    probabilities, labels = predictions(dtype=dtype)
    exact = probabilities.double()
    exact = exact / exact.sum(1, keepdim=True)  # sklearn warns about float32 row sums
    expected = sklearn_metrics.log_loss(labels.numpy(), exact.numpy(), labels=list(range(5)))
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(expected, rel=tolerance)


def test_nll_floor() -> None:
    certain = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    wrong = torch.tensor([0, 1])
    assert negative_log_likelihood(certain, wrong) == pytest.approx(0.5 * 38 * math.log(10))
    assert negative_log_likelihood(certain, wrong, floor=0.1) == pytest.approx(0.5 * math.log(10), rel=1e-12)
    assert negative_log_likelihood(certain, wrong, floor=0.0) == math.inf
    least_normal = torch.finfo(torch.float32).tiny
    unlifted = negative_log_likelihood(torch.tensor([[1.0, least_normal]]), torch.tensor([1]))
    assert unlifted == pytest.approx(-math.log(least_normal), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [2, 5])
def test_brier_matches_sklearn(dtype: torch.dtype, classes: int) -> None:
    probabilities, labels = predictions(classes=classes, dtype=dtype)
    exact = probabilities.double()
    exact = exact / exact.sum(1, keepdim=True)
    expected = sklearn_metrics.brier_score_loss(labels.numpy(), exact.numpy(), labels=list(range(classes)))
    expected *= 2 if classes == 2 else 1  # sklearn halves the sum over two classes
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert brier(probabilities, labels) == pytest.approx(expected, rel=tolerance)


def test_brier_conventions_of_the_docstring() -> None:
    probabilities, labels = predictions()
    chosen = probabilities[torch.arange(len(labels)), labels]
    tensorflow_probability = (probabilities.square().sum(1) - 2 * chosen).mean().item()
    assert brier(probabilities, labels) - 1 == pytest.approx(tensorflow_probability, rel=1e-12)

    probabilities, labels = predictions(classes=2)
    single_column = sklearn_metrics.brier_score_loss(labels.numpy(), probabilities[:, 1].numpy())
    assert brier(probabilities, labels) == pytest.approx(2 * single_column, rel=1e-12)


def test_perfect_worst_and_uniform_classes() -> None:
    labels = torch.tensor([0, 1, 2, 1])
    perfect = torch.eye(3)[labels]
    worst = torch.eye(3)[(labels + 1) % 3]
    uniform = torch.full((4, 3), 1 / 3, dtype=torch.float64)
    assert accuracy(perfect, labels) == 1.0
    assert accuracy(worst, labels) == 0.0
    assert brier(perfect, labels) == 0.0
    assert brier(worst, labels) == 2.0
    assert brier(uniform, labels) == pytest.approx(2 / 3, rel=1e-12)
    assert str(negative_log_likelihood(perfect, labels)) == "0.0"  # not -0.0
    assert negative_log_likelihood(uniform, labels) == pytest.approx(math.log(3), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(20,), (10, 3), ()])
def test_rmse_matches_sklearn(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    mean, _, y = regression(shape, dtype)
    expected = sklearn_metrics.root_mean_squared_error(y.double().flatten().numpy(), mean.double().flatten().numpy())
    assert rmse(mean, y) == pytest.approx(expected, rel=1e-12)
    assert rmse(y, y) == 0.0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(20,), (10, 3)])
def test_gaussian_nll_matches_scipy(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    mean, std, y = regression(shape, dtype)
    variance = std.square()
    expected = -stats.norm.logpdf(y.double().numpy(), mean.double().numpy(), variance.double().sqrt().numpy()).mean()
    assert gaussian_nll(mean, variance, y) == pytest.approx(expected, rel=1e-12)


def crps_integral(distribution: Callable[[float], float], y: float, reach: float) -> float:
    """The integral of (F(x) - [x >= y])^2 over [y - reach, y + reach]."""
    below, _ = integrate.quad(lambda x: distribution(x) ** 2, y - reach, y, limit=200)
    above, _ = integrate.quad(lambda x: (1 - distribution(x)) ** 2, y, y + reach, limit=200)
    return below + above


@pytest.mark.parametrize("dtype", DTYPES)
def test_crps_gaussian_matches_quadrature(dtype: torch.dtype) -> None:
    mean, std, y = regression(dtype=dtype)
    expected = [
        crps_integral(lambda x, m=m, s=s: float(stats.norm.cdf(x, m, s)), t, 12 * s + abs(t - m))
        for m, s, t in zip(mean.tolist(), std.tolist(), y.tolist(), strict=True)
    ]
    assert crps_gaussian(mean, std, y) == pytest.approx(sum(expected) / len(expected), rel=1e-7)


def test_crps_gaussian_limits() -> None:
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    at_centre = (math.sqrt(2) - 1) / math.sqrt(math.pi)
    assert crps_gaussian(zero, one, zero) == pytest.approx(at_centre, rel=1e-12)
    assert crps_gaussian(zero, 1e-9 * one, 3 * one) == pytest.approx(3.0, rel=1e-8)  # |y - mean|
    mean, std, y = regression((10, 3))
    assert crps_gaussian(7 * mean, 7 * std, 7 * y) == pytest.approx(7 * crps_gaussian(mean, std, y))
    assert crps_gaussian(mean, std, 2 * mean - y) == pytest.approx(crps_gaussian(mean, std, y))


def crps_pairs(samples: list[float], y: float, fair: bool) -> float:
    """The two expectations as plain sums over samples and pairs."""
    count = len(samples)
    error = sum(abs(x - y) for x in samples) / count
    spread = sum(abs(a - b) for a, b in itertools.product(samples, samples))
    return error - 0.5 * spread / (count * (count - 1) if fair else count**2)


@pytest.mark.parametrize("fair", [True, False])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decimals", [None, 0])  # rounding to integers makes many ties
def test_crps_samples_matches_all_pairs(fair: bool, dtype: torch.dtype, decimals: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    samples = 3 * torch.randn(17, 4, 2, generator=generator, dtype=dtype) + 5
    y = 3 * torch.randn(4, 2, generator=generator, dtype=dtype) + 5
    if decimals is not None:
        samples, y = samples.round(decimals=decimals), y.round(decimals=decimals)
    columns = zip(samples.flatten(1).T.tolist(), y.flatten().tolist(), strict=True)
    expected = [crps_pairs(column, target, fair) for column, target in columns]
    assert crps_samples(samples, y, fair) == pytest.approx(sum(expected) / 8, rel=1e-11)


def test_crps_samples_unfair_is_the_integral_of_the_empirical_distribution() -> None:
    draws, y = [-1.0, 0.5, 0.5, 2.0, 3.5], 0.8
    grid = sorted({*draws, y})
    expected = 0.0
    for left, right in itertools.pairwise(grid):  # F is constant between grid points
        level = sum(x <= left for x in draws) / len(draws) - (left >= y)
        expected += (right - left) * level**2
    samples = torch.tensor(draws, dtype=torch.float64)[:, None]
    target = torch.tensor([y], dtype=torch.float64)
    assert crps_samples(samples, target, fair=False) == pytest.approx(expected, rel=1e-12)


def test_crps_samples_fair_is_unbiased_and_the_default() -> None:
    generator = torch.Generator().manual_seed(2)
    count, targets = 3, 40_000
    samples = torch.randn(count, targets, generator=generator, dtype=torch.float64)
    y = torch.full((targets,), 0.7, dtype=torch.float64)
    exact = crps_gaussian(torch.zeros_like(y), torch.ones_like(y), y)
    # Measured over 400 000 targets, one estimate has a standard deviation of 0.375 (unfair: 0.363).
    tolerance = 5 * 0.38 / math.sqrt(targets)
    assert abs(crps_samples(samples, y) - exact) < tolerance
    bias = (2 / math.sqrt(math.pi)) / (2 * count)  # E|X - X'| / 2S
    assert abs(crps_samples(samples, y, fair=False) - exact - bias) < tolerance


def test_crps_samples_of_one_sample_or_one_value() -> None:
    y = torch.tensor([1.0, 2.0])
    assert crps_samples(torch.zeros(1, 2), y, fair=False) == 1.5
    assert crps_samples(torch.zeros(6, 2), y) == 1.5
    assert crps_samples(torch.zeros(6), torch.tensor(2.0)) == 2.0  # one target, no axis
    far = torch.tensor([[1e12], [1e12 + 1]], dtype=torch.float64)  # no cancellation at an offset
    assert crps_samples(far, torch.full((1,), 1e12, dtype=torch.float64)) == 0.0


def test_float32_is_accumulated_in_float64() -> None:
    y = torch.full((1000, 1000), 0.1)
    assert rmse(torch.zeros_like(y), y) == pytest.approx(y[0, 0].item(), rel=1e-12)


def test_gradients_are_not_tracked() -> None:
    mean = torch.zeros(3, requires_grad=True)
    assert isinstance(rmse(mean, torch.ones(3)), float)


GOOD = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
LABELS = torch.tensor([0, 1])


@each("score", CLASS_SCORES)
@each(
    ("probabilities", "error", "message"),
    [
        (GOOD[:, 0], ValueError, "`probabilities` must be (N, C) with C >= 2, got shape (2,): for"),
        (GOOD[:, :1], ValueError, "must be (N, C) with C >= 2, got shape (2, 1): for two classes"),
        (GOOD[None], ValueError, "must be (N, C) with C >= 2, got shape (1, 2, 2)"),
        (2 * GOOD, ValueError, "sum to 1 in each row within 0.001, got 2 in row 0: pass softmax("),
        (GOOD * 1.0011, ValueError, "`probabilities` must sum to 1 in each row within 0.001"),
        (torch.tensor([[1.5, -0.5]] * 2), ValueError, "must be >= 0, got a minimum of -0.5: pass"),
        (GOOD[:0], ValueError, "`probabilities` must not be empty, got shape (0, 2): pass"),
        (GOOD.long(), TypeError, "`probabilities` must be floating, got dtype torch.int64: pass"),
        (GOOD > 0.5, TypeError, "`probabilities` must hold real numbers, got dtype torch.bool"),
        (GOOD + 0j, TypeError, "must hold real numbers, got dtype torch.complex64: pass"),
        (GOOD.numpy(), TypeError, "must be a torch.Tensor, got ndarray: pass torch.as_tensor(prob"),
        (
            torch.tensor([[0.5, 0.5], [0.5, math.nan]]),
            ValueError,
            "`probabilities` must be finite, got nan at index (1, 1) (1 non-finite in all): find",
        ),
    ],
)
def test_bad_probabilities(score: ClassScore, probabilities: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        score(probabilities, LABELS)


@each("score", CLASS_SCORES)
@each(
    ("labels", "error", "message"),
    [
        (LABELS.float(), TypeError, "`labels` must be integers, got dtype torch.float32: pass"),
        (LABELS.bool(), TypeError, "`labels` must be integers, got dtype torch.bool: pass"),
        (LABELS + 0j, TypeError, "`labels` must be integers, got dtype torch.complex64: pass"),
        (LABELS.numpy(), TypeError, "`labels` must be a torch.Tensor, got ndarray: pass"),
        (
            LABELS[:1],
            ValueError,
            "`labels` must be (2,) to match `probabilities` (2, 2), got shape",
        ),
        (torch.eye(2).long(), ValueError, "got shape (2, 2): pass class indices, not one-hot rows"),
        (LABELS + 1, ValueError, "`labels` must lie in 0..1, got 1..2: renumber the classes"),
        (LABELS - 1, ValueError, "`labels` must lie in 0..1, got -1..0: renumber the classes"),
    ],
)
def test_bad_labels(score: ClassScore, labels: Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        score(GOOD, labels)


def test_row_sums_within_the_tolerance_pass() -> None:
    assert accuracy(GOOD * 1.0009, LABELS) == 1.0
    assert accuracy(GOOD.half(), LABELS) == 1.0


@pytest.mark.parametrize("floor", [-1e-9, 1.0, math.nan])
def test_bad_floor(floor: float) -> None:
    with pytest.raises(ValueError, match=r"`floor` must be in \[0, 1\), got .*: pass e.g. 1e-38"):
        negative_log_likelihood(GOOD, LABELS, floor=floor)


ONES = torch.ones(3)
MIXED = torch.tensor([1.0, 0.0, 1.0])
BROKEN = torch.tensor([1.0, math.inf, 1.0])


@each(
    ("call", "message"),
    [
        (lambda: rmse(ONES, ONES[:, None]), "`y` must have the shape of `mean` (3,), got (3, 1)"),
        (lambda: rmse(ONES[:0], ONES[:0]), "`mean` must not be empty, got shape (0,)"),
        (lambda: rmse(BROKEN, ONES), "`mean` must be finite, got inf at index (1,)"),
        (lambda: rmse(ONES, BROKEN), "`y` must be finite, got inf at index (1,)"),
        (lambda: rmse(ONES[0], BROKEN[1]), "`y` must be finite, got inf at index ()"),
        (lambda: gaussian_nll(ONES, ONES[:1], ONES), "`variance` must have the shape of `mean`"),
        (lambda: gaussian_nll(ONES, ONES, ONES[:1]), "`y` must have the shape of `mean` (3,)"),
        (lambda: gaussian_nll(BROKEN, ONES, ONES), "`mean` must be finite"),
        (lambda: gaussian_nll(ONES, BROKEN, ONES), "`variance` must be finite"),
        (lambda: gaussian_nll(ONES, ONES, BROKEN), "`y` must be finite"),
        (lambda: gaussian_nll(ONES, 0 * ONES, ONES), "`variance` must be > 0 everywhere, got a"),
        (lambda: gaussian_nll(ONES, MIXED, ONES), "`variance` must be > 0 everywhere, got a"),
        (lambda: gaussian_nll(ONES, -ONES, ONES), "must be > 0 everywhere, got a minimum of -1: "),
        (lambda: crps_gaussian(ONES, ONES[:1], ONES), "`std` must have the shape of `mean` (3,)"),
        (lambda: crps_gaussian(ONES, ONES, ONES[:1]), "`y` must have the shape of `mean` (3,)"),
        (lambda: crps_gaussian(BROKEN, ONES, ONES), "`mean` must be finite"),
        (lambda: crps_gaussian(ONES, 0 * ONES, ONES), "`std` must be > 0 everywhere, got a"),
        (lambda: crps_gaussian(ONES, ONES, BROKEN), "`y` must be finite"),
        (lambda: crps_samples(ONES[None], ONES), "must be (S, ...) with S >= 2, got shape (1, 3)"),
        (lambda: crps_samples(ONES[0], ONES, False), "(S, ...) with S >= 1, got shape (): draw"),
        (lambda: crps_samples(ONES[:0], ONES), "`samples` must not be empty"),
        (lambda: crps_samples(BROKEN, ONES[0]), "`samples` must be finite"),
        (lambda: crps_samples(ONES.expand(2, 3), BROKEN), "`y` must be finite"),
        (
            lambda: crps_samples(torch.ones(3, 2), ONES),
            "`y` must have the shape of `samples[0]` (2,), got (3,): nothing is broadcast",
        ),
    ],
)
def test_bad_regression_inputs(call: Callable[[], float], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
