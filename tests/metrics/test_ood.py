"""Detection metrics against scikit-learn and brute force over pairs."""

import doctest
import itertools
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from bayeslim.metrics import auroc, fpr_at_tpr, ood
from contracts.cases import each

DTYPES = [torch.float32, torch.float64]


def score_pair(dtype: torch.dtype = torch.float64, ties: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores_in = torch.randn(83, generator=generator, dtype=dtype)
    scores_out = torch.randn(60, generator=generator, dtype=dtype) + 1
    return (scores_in.round(), scores_out.round()) if ties else (scores_in, scores_out)


def stacked(scores_in: Tensor, scores_out: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Labels (1 = out of distribution) and scores, as scikit-learn takes them."""
    labels = np.repeat([0, 1], [len(scores_in), len(scores_out)])
    return labels, torch.cat([scores_in, scores_out]).numpy()


def test_docstring_examples() -> None:
    assert doctest.testmod(ood).failed == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ties", [False, True])
def test_auroc_matches_sklearn_and_all_pairs(dtype: torch.dtype, ties: bool) -> None:
    scores_in, scores_out = score_pair(dtype, ties)
    ours = auroc(scores_in, scores_out)
    expected = float(sklearn_metrics.roc_auc_score(*stacked(scores_in, scores_out)))
    assert ours == pytest.approx(expected, rel=1e-12)
    pairs = list(itertools.product(scores_in.tolist(), scores_out.tolist()))
    wins = sum(1.0 if b > a else 0.5 if b == a else 0.0 for a, b in pairs)
    assert ours == pytest.approx(wins / len(pairs), rel=1e-12)
    assert 0.6 < ours < 0.9


def test_auroc_edges() -> None:
    low, high = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])
    assert auroc(low, high) == 1.0
    assert auroc(high, low) == 0.0
    assert auroc(torch.zeros(3), torch.zeros(5)) == 0.5
    scores_in, scores_out = score_pair(ties=True)
    assert auroc(scores_in, scores_out) == pytest.approx(1 - auroc(scores_out, scores_in))
    assert auroc(scores_in, scores_out) == pytest.approx(auroc(-scores_out, -scores_in))
    assert auroc(torch.tensor([1, 2]), torch.tensor([2, 3])) == 0.875  # integer scores


@each("dtype", DTYPES)
@each("ties", [False, True])
@each("tpr", [0.01, 0.5, 0.8, 0.95, 1.0])
def test_fpr_matches_the_roc_curve(dtype: torch.dtype, ties: bool, tpr: float) -> None:
    scores_in, scores_out = score_pair(dtype, ties)
    false_rates, true_rates, _ = sklearn_metrics.roc_curve(*stacked(scores_in, scores_out), drop_intermediate=False)
    expected = float(false_rates[np.argmax(true_rates >= tpr)])
    assert fpr_at_tpr(scores_in, scores_out, tpr) == pytest.approx(expected, rel=1e-12)


@each("percent", range(1, 101))
def test_fpr_needs_exactly_the_asked_fraction(percent: int) -> None:
    # With scores 1..100 on both sides, flagging k of 100 flags k of 100 on the other side too.
    ranks = torch.arange(1.0, 101.0)
    assert fpr_at_tpr(ranks, ranks, percent / 100) == pytest.approx(percent / 100, rel=1e-12)


def test_fpr_edges_and_default() -> None:
    low, high = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0, 5.0])
    assert fpr_at_tpr(low, high) == 0.0
    assert fpr_at_tpr(high, low) == 1.0
    assert fpr_at_tpr(torch.zeros(4), torch.zeros(2)) == 1.0  # ties are flagged
    scores_in, scores_out = score_pair()
    assert fpr_at_tpr(scores_in, scores_out) == fpr_at_tpr(scores_in, scores_out, 0.95)
    assert fpr_at_tpr(scores_in, scores_out) != fpr_at_tpr(scores_in, scores_out, 0.9)


def test_fpr_with_the_in_distribution_class_as_positive() -> None:
    scores_in, scores_out = score_pair()
    labels, values = stacked(scores_in, scores_out)
    false_rates, true_rates, _ = sklearn_metrics.roc_curve(1 - labels, -values)
    expected = float(false_rates[np.argmax(true_rates >= 0.95)])
    assert fpr_at_tpr(-scores_out, -scores_in) == pytest.approx(expected, rel=1e-12)
    assert expected != pytest.approx(fpr_at_tpr(scores_in, scores_out))


ONES = torch.ones(3)
BROKEN = torch.tensor([1.0, -math.inf, math.nan])


@pytest.mark.parametrize("metric", [auroc, fpr_at_tpr])
@pytest.mark.parametrize(
    ("scores_in", "scores_out", "message"),
    [
        (ONES[:0], ONES, "`scores_in` must not be empty, got shape (0,): pass"),
        (ONES, ONES[:0], "`scores_out` must not be empty, got shape (0,): pass"),
        (BROKEN, ONES, "`scores_in` must be finite, got -inf at index (1,) (2 non-finite in all)"),
        (ONES, BROKEN, "`scores_out` must be finite, got -inf at index (1,)"),
        (ONES[:, None], ONES, "`scores_in` must be (N,), got shape (3, 1): pass one score per"),
        (ONES, ONES[0], "`scores_out` must be (N,), got shape (): pass one score per example"),
    ],
)
def test_bad_scores(
    metric: Callable[[Tensor, Tensor], float], scores_in: Tensor, scores_out: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        metric(scores_in, scores_out)


@pytest.mark.parametrize("metric", [auroc, fpr_at_tpr])
def test_scores_must_be_tensors(metric: Callable[[Tensor, object], float]) -> None:
    with pytest.raises(TypeError, match=r"`scores_out` must be a torch.Tensor, got list: pass"):
        metric(ONES, [1.0, 2.0])


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.1, math.nan])
def test_bad_tpr(tpr: float) -> None:
    message = f"`tpr` must be in (0, 1], got {tpr}: pass e.g. 0.95"
    with pytest.raises(ValueError, match=re.escape(message)):
        fpr_at_tpr(ONES, ONES, tpr)
