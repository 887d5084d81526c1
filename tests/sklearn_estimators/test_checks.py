"""scikit-learn's own checks: short runs here, the default settings under `slow`."""

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from bayeslim.sklearn import BayesianMLPClassifier, BayesianMLPRegressor


@parametrize_with_checks([BayesianMLPClassifier(max_iter=30), BayesianMLPRegressor(max_iter=30)])
def test_contract_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_contract_of_scikit_learn_with_default_settings(kind: Callable[[], Any]) -> None:
    check_estimator(kind(), on_skip=None)
