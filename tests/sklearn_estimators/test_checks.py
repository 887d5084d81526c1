"""scikit-learn's own checks: short runs here, the default settings under `slow`."""

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

SHORT: dict[str, Any] = {"max_iter": 8, "learning_rate": 0.05, "hidden_layer_sizes": (20,), "n_samples": 50}


@parametrize_with_checks([BayesianMLPClassifier(**SHORT), BayesianMLPRegressor(**SHORT)])
def test_contract_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_contract_of_scikit_learn_with_default_settings(kind: Callable[[], Any]) -> None:
    check_estimator(kind(), on_skip=None)
