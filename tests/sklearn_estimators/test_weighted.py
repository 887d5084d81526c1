import math
from typing import Any

import numpy as np
import pytest
import torch

from bayeslim.likelihoods import Categorical, Gaussian
from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor
from bayeslim.sklearn.weighted import WeightedCategorical, WeightedGaussian, merged


def test_equal_rows_become_one_with_their_weights_added() -> None:
    x = np.array([[2.0, 1.0], [0.0, 3.0], [2.0, 1.0], [2.0, 1.0]], dtype=np.float32)
    y = np.array([[5.0], [7.0], [5.0], [6.0]])
    found = merged(x, y, np.array([0.5, 1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(found.x, [[0, 3], [2, 1], [2, 1]])
    np.testing.assert_array_equal(found.y, [[7], [5], [6]])
    np.testing.assert_array_equal(found.weight, [1.0, 2.5, 4.0])
    assert found.x.dtype == np.float32


def test_a_weight_multiplies_the_nll_of_its_example() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    weight = torch.tensor([1.0, 0.5, 3.0, 2.0])
    packed = torch.stack([labels.float(), weight], 1)
    torch.testing.assert_close(
        WeightedCategorical().expected_nll(logits, packed), weight * Categorical().nll(logits, labels)
    )
    output, y = torch.randn(4, 2), torch.randn(4, 2)
    packed = torch.cat([y, weight[:, None]], 1)
    torch.testing.assert_close(
        WeightedGaussian(0.7).expected_nll(output, packed), weight * Gaussian(0.7).nll(output, y)
    )


@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_integer_weights_are_repetitions_exactly(kind: Any) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(40, 3)), generator.integers(0, 2, 40)
    weight = generator.integers(0, 4, 40)
    order = generator.permutation(weight.sum())
    weighted = kind(max_iter=5, batch_size=7, random_state=0).fit(X, y, weight)
    repeated = kind(max_iter=5, batch_size=7, random_state=0).fit(
        np.repeat(X, weight, 0)[order], np.repeat(y, weight)[order]
    )
    assert (weighted.sample_y(X, 3) == repeated.sample_y(X, 3)).all()
    assert weighted.loss_curve_ == repeated.loss_curve_


def test_loss_is_per_unit_of_weight_and_weights_of_one_are_the_plain_fit() -> None:
    generator = np.random.default_rng(1)
    X = generator.normal(size=(60, 2))
    y = X[:, 0]
    options: dict[str, Any] = {"max_iter": 3, "kl_warmup": 0.0, "random_state": 0}
    plain = BayesianMLPRegressor(**options).fit(X, y)
    ones = BayesianMLPRegressor(**options).fit(X, y, np.ones(60))
    assert plain.loss_curve_ == ones.loss_curve_
    # Weights of 10 with ten times the KL are the same objective up to a factor.
    tens = BayesianMLPRegressor(kl_weight=10.0, **options).fit(X, y, np.full(60, 10.0))
    np.testing.assert_allclose(tens.loss_curve_, plain.loss_curve_, rtol=1e-9)


def test_weights_pull_the_fit() -> None:
    """Two groups of targets at one input: the optimum is their weighted mean, the noise their weighted spread."""
    X = np.zeros((200, 1))
    y = np.repeat([0.0, 1.0], 100)
    weight = np.repeat([300.0, 100.0], 100)
    model = BayesianMLPRegressor((), max_iter=300, random_state=0).fit(X, y, weight)
    assert model.predict(X[:1])[0] == pytest.approx(0.25, abs=0.01)
    assert model.noise_[0] == pytest.approx(math.sqrt(0.25 * 0.75), rel=0.02)
